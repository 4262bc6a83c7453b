"""Fields of chat and completions beyond the common ones: each has the effect that is documented, or is refused by name."""

import asyncio
from typing import Any

import pytest

from octavo.config.options import ServerOptions
from octavo.errors import ConfigError
from octavo.protocol.columns import unpack
from octavo.protocol.messages import EngineRequest
from octavo.server.state import ServerState
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import Served, in_process

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
BOTH: dict[str, Any] = {"messages": MESSAGES, "prompt": "hi"}


def prompt_of(request: EngineRequest, tokenizer: Tokenizer) -> str:
    return tokenizer.decode(unpack(request.token_ids).tolist())


async def prompts(served: Served, tokenizer: Tokenizer, path: str, *bodies: dict[str, Any]) -> list[str]:
    """What the engine is given for each body."""
    for body in bodies:
        response = await served.post(path, **body)
        assert response.status_code == 200, response.text
    return [prompt_of(request, tokenizer) for request in served.engine.added]


# --- what a prompt is made of


async def test_a_prompt_is_cut_at_the_end_that_is_asked_for(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        sides: list[dict[str, Any]] = [{}, {"truncation_side": "left"}, {"truncation_side": "right"}]
        bodies = [{"prompt": "abcdef", "truncate_prompt_tokens": 2, "echo": True, **side} for side in sides]
        found = await prompts(served, tokenizer, COMPLETIONS, *bodies)
        reply = (await served.post(COMPLETIONS, **bodies[2], logprobs=0)).json()
        events = await served.events(COMPLETIONS, **bodies[2], stream_options={"include_usage": True})
    assert found == ["ef", "ef", "ab"]
    assert reply["choices"][0]["text"] == "abhello world"
    assert reply["choices"][0]["logprobs"]["tokens"][:2] == ["a", "b"]
    assert reply["usage"]["prompt_tokens"] == 2
    assert events[-2]["usage"] == reply["usage"]


async def test_minus_one_keeps_what_leaves_room_for_the_answer(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        body = {"prompt": "abc" * 200, "truncate_prompt_tokens": -1, "max_tokens": 6}
        (found,) = await prompts(served, tokenizer, COMPLETIONS, body)
    assert found == ("abc" * 200)[-250:]


async def test_a_chat_is_cut_like_any_prompt_and_can_be_told(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        body: dict[str, Any] = {"messages": MESSAGES, "truncate_prompt_tokens": 3, "return_prompt_text": True, "return_token_ids": True}
        reply = (await served.post(CHAT, **body)).json()
        events = await served.events(CHAT, **body)
    assert reply["prompt_text"] == events[0]["prompt_text"] == "<|start|>assistant\n"[-3:] or len(reply["prompt_token_ids"]) == 3
    assert reply["prompt_token_ids"] == events[0]["prompt_token_ids"]
    assert tokenizer.decode(reply["prompt_token_ids"]) == reply["prompt_text"]
    assert all("prompt_text" not in event for event in events[1:-1])


async def test_a_template_comes_from_a_request_only_where_that_is_trusted(tokenizer: Tokenizer) -> None:
    body = {"messages": MESSAGES, "chat_template": "{{ mood }}:{{ messages[0].content }}", "chat_template_kwargs": {"mood": "gay"}}
    async with in_process(tokenizer) as served:
        refused = await served.post(CHAT, **body)
    trusting = ServerOptions(trust_request_chat_template=True, default_chat_template_kwargs={"mood": "sad"})
    async with in_process(tokenizer, options=trusting) as served:
        found = await prompts(served, tokenizer, CHAT, body, body | {"chat_template_kwargs": None})
        endless = await served.post(CHAT, messages=MESSAGES, chat_template="{% for i in range(10**9) %}{{ i }}{% endfor %}")
        wrong = await served.post(CHAT, messages=MESSAGES, chat_template="{% if %}")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "chat_template")
    assert found == ["gay:hi", "sad:hi"]
    assert endless.status_code == 400
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "chat_template")


def test_default_variables_of_templates_are_checked_at_the_start() -> None:
    with pytest.raises(ConfigError, match="messages"):
        ServerState(ServerOptions(default_chat_template_kwargs={"messages": []}))


@pytest.mark.parametrize(
    "content",
    [
        "hi",
        [{"type": "text", "text": "hi"}],
        ["hi"],
        [{"type": "input_text", "text": "hi"}],
        [{"type": "output_text", "text": "hi"}],
        [{"type": "refusal", "refusal": "hi"}],
        [{"type": "thinking", "thinking": "hi"}],
    ],
)
async def test_text_is_text_in_whatever_part_it_comes(tokenizer: Tokenizer, content: Any) -> None:
    async with in_process(tokenizer) as served:
        (found,) = await prompts(served, tokenizer, CHAT, {"messages": [{"role": "user", "content": content}]})
    assert found == "<|start|>user\nhi<|end|>\n<|start|>assistant\n"


async def test_roles_and_calls_of_a_history_go_through_the_template(tokenizer: Tokenizer) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    history = [
        {"role": "developer", "content": "d"},
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42", "unknown": 1},
    ]
    async with in_process(tokenizer) as served:
        (found,) = await prompts(served, tokenizer, CHAT, {"messages": history})
    assert [part.partition("\n")[0] for part in found.split("<|start|>")[1:]] == [*(m["role"] for m in history), "assistant"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "x", "name": 5},
        {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": ["x"]},
        {"role": "assistant", "tool_calls": [{"function": "x"}]},
        {"role": 5, "content": "x"},
        {"content": "x"},
        {"role": "user", "content": [{"type": "text", "text": 5}]},
        {"role": "user", "content": [{"type": 5}]},
        {"role": "user", "content": [None]},
    ],
)
async def test_what_is_no_message_is_refused(tokenizer: Tokenizer, message: dict[str, Any]) -> None:
    async with in_process(tokenizer) as served:
        response = await served.post(CHAT, messages=[message])
        tokenized = await served.post("/tokenize", messages=[message])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
    assert tokenized.status_code == 400


# --- what the engine is asked


async def test_every_parameter_reaches_the_engine(tokenizer: Tokenizer) -> None:
    given: dict[str, Any] = {
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 9,
        "min_p": 0.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.1,
        "logit_bias": {"5": 300, "6": -1},
        "stop_token_ids": [7],
        "min_tokens": 2,
        "allowed_token_ids": list(range(200)),
        "bad_words": ["z"],
        "repetition_detection": {"max_pattern_size": 3, "min_count": 4},
    }
    fixed: dict[str, Any] = {"max_tokens": 20, "seed": 3, "cache_salt": "s", "ignore_eos": True}
    async with in_process(tokenizer, "a" * 30) as served:
        for path in (CHAT, COMPLETIONS):
            assert (await served.post(path, **BOTH, **given, **fixed)).status_code == 200
        requests = served.engine.added
    for request in requests:
        assert (request.seed, request.cache_salt, request.eos_token_ids) == (3, "s", [])
        sampling = request.sampling
        assert sampling is not None
        assert sampling.logit_bias == {5: 100.0, 6: -1.0}
        assert sampling.bad_words_token_ids
        assert sampling.repetition_detection is not None
        assert sampling.repetition_detection.max_pattern_size == 3
        for name in given.keys() - {"logit_bias", "bad_words", "repetition_detection"}:
            assert getattr(sampling, name) == given[name], name


async def test_max_tokens_is_bounded_by_the_generation_config(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, "a" * 50, default_sampling={"max_tokens": 9}) as served:
        for path in (CHAT, COMPLETIONS):
            for asked in (None, 5, 30):
                await served.post(path, **BOTH, max_tokens=asked)
        found = [request.sampling.max_tokens for request in served.engine.added if request.sampling]
    assert found == [9, 5, 9, 9, 5, 9]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 2.0),
        ("n", "2"),
        ("n", True),
        ("n", 16385),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", 1.5),
        ("top_k", 1.5),
        ("min_p", -0.1),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("repetition_penalty", 0),
        ("seed", 2**63),
        ("seed", 1.5),
        ("stop", 5),
        ("stop", ["a"] * 5),
        ("stop", "x" * 70_000),
        ("stop_token_ids", [10**6]),
        ("stop_token_ids", 5),
        ("stop_token_ids", [True]),
        ("min_tokens", -1),
        ("max_tokens", -1),
        ("max_tokens", 1.0),
        ("max_tokens", True),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [-1]),
        ("bad_words", [""]),
        ("bad_words", ["x"] * 129),
        ("logit_bias", {"-1": 5}),
        ("logit_bias", {"5": "x"}),
        ("logit_bias", [5]),
        ("prompt_logprobs", -2),
        ("prompt_logprobs", 21),
        ("truncate_prompt_tokens", 0),
        ("truncate_prompt_tokens", -2),
        ("truncate_prompt_tokens", 257),
        ("truncation_side", "middle"),
        ("stream", "yes"),
        ("stream_interval", 0),
        ("priority", 2**63),
        ("request_id", ""),
        ("request_id", "x" * 257),
        ("request_id", 5),
        ("cache_salt", "x" * 1025),
        ("user", 5),
        ("vllm_xargs", {"my_extension": 1}),
        ("vllm_xargs", {"my_extension": None}),
        ("repetition_detection", {"max_pattern_size": -1}),
        ("stream_options", {"include_usage": "yes"}),
        ("use_beam_search", 1),
    ],
)
async def test_values_out_of_range_are_refused_by_name(tokenizer: Tokenizer, path: str, name: str, value: Any) -> None:
    async with in_process(tokenizer) as served:
        response = await served.post(path, **BOTH | {name: value})
        assert served.engine.added == []
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == name


LATER: list[tuple[str, Any]] = [
    ("thinking_token_budget", 5),  # of a model whose reasoning is not known
    ("prompt_embeds", "AAAA"),
    ("kv_transfer_params", {"a": 1}),
    ("ec_transfer_params", {"a": 1}),
    ("watermarking", True),
    ("return_weight_versions", True),
    ("routed_experts_prompt_start", 3),
    ("return_token_offsets", True),
    ("mm_payload", "hashes"),
    ("return_mm_kwargs", True),
    ("guided_json", {}),
    ("guided_regex", "a"),
    ("guided_choice", ["a"]),
    ("guided_grammar", "a"),
]


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        *((path, name, value) for path in (CHAT, COMPLETIONS) for name, value in LATER),
        (CHAT, "tools", [{"type": "function", "function": {"name": "f"}}]),
        (CHAT, "tools", []),
        (CHAT, "tool_choice", "required"),
        (CHAT, "functions", [{}]),
        (CHAT, "function_call", {"name": "f"}),
        (CHAT, "audio", {"voice": "x"}),
        (CHAT, "modalities", ["text", "audio"]),
        (CHAT, "web_search_options", {}),
        (CHAT, "media_io_kwargs", {"image": {}}),
        (CHAT, "mm_processor_kwargs", {"a": 1}),
        (CHAT, "reasoning_effort", "extreme"),
        (CHAT, "logprob_token_ids", [5]),
        (CHAT, "top_logprobs", -1),
        (COMPLETIONS, "logprob_token_ids", [5]),
        (COMPLETIONS, "suffix", "x"),
        (COMPLETIONS, "best_of", 2),
    ],
)
async def test_what_awaits_its_feature_is_refused_by_name(tokenizer: Tokenizer, path: str, name: str, value: Any) -> None:
    async with in_process(tokenizer) as served:
        response = await served.post(path, **BOTH | {name: value})
        assert served.engine.added == []
    assert (response.status_code, response.json()["error"]["param"]) == (400, name), response.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, {name: None}) for path in (CHAT, COMPLETIONS) for name, _ in LATER),
        *(
            (path, body)
            for path in (CHAT, COMPLETIONS)
            for body in (
                {"response_format": {"type": "text"}},
                {"structured_outputs": {}},
                {"vllm_xargs": {}},
                {"kv_transfer_params": {}},
                {"watermarking": False},
                {"return_token_offsets": False},
                {"user": "u", "session_id": "s", "priority": 0, "request_id": "r"},
                {"stop": []},
                {"bad_words": [], "stop_token_ids": [], "logit_bias": {}},
                {"truncation_side": "right"},
            )
        ),
        (CHAT, {"tool_choice": "none", "parallel_tool_calls": False, "include_reasoning": False, "modalities": ["text"]}),
        (CHAT, {"reasoning_effort": "low", "media_io_kwargs": {}, "mm_processor_kwargs": {}}),
        (COMPLETIONS, {"best_of": 3, "n": 3}),
        (COMPLETIONS, {"best_of": 1, "suffix": ""}),
    ],
)
async def test_what_asks_for_nothing_is_taken(tokenizer: Tokenizer, path: str, body: dict[str, Any]) -> None:
    async with in_process(tokenizer) as served:
        response = await served.post(path, **BOTH | body)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_fields_that_nothing_reads_are_told(tokenizer: Tokenizer, path: str, stream: bool) -> None:
    body = {"messages": MESSAGES} if path == CHAT else {"prompt": "hi"}
    async with in_process(tokenizer) as served:
        odd = {"store": True, "metadata": {"a": 1}, "odd\r\nname: x": 1, "tools": None}
        response = await served.post(path, **body, **odd, stream=stream, user="u")
        plain = await served.post(path, **body, stream=stream, user="u")
    assert response.status_code == 200, response.text
    assert response.headers["x-ignored-fields"] == "store, metadata, ..."
    assert "x-ignored-fields" not in plain.headers


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("name", ["stop", "stop_token_ids", "min_tokens", "logit_bias", "bad_words", "presence_penalty"])
async def test_a_beam_search_refuses_what_it_would_ignore(tokenizer: Tokenizer, path: str, name: str) -> None:
    values = {"stop": "x", "stop_token_ids": [5], "min_tokens": 1, "logit_bias": {"5": 1}, "bad_words": ["x"], "presence_penalty": 1}
    async with in_process(tokenizer) as served:
        response = await served.post(path, **BOTH, use_beam_search=True, n=2, **{name: values[name]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, name)


async def test_too_many_prompts_or_beams_are_refused_before_any_is_encoded(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        many = await served.post(COMPLETIONS, prompt=["a"] * 9000, n=2)
        beams = await served.post(CHAT, messages=MESSAGES, use_beam_search=True, n=5_000_000)
        assert served.engine.added == []
    assert (many.status_code, many.json()["error"]["param"]) == (400, "prompt")
    assert beams.status_code == 400


# --- what an answer tells


@pytest.mark.parametrize("count", [0, 1, -1])
async def test_so_many_rivals_are_told_as_asked(tokenizer: Tokenizer, count: int) -> None:
    async with in_process(tokenizer, "ab", max_logprobs=-1) as served:
        chat = (await served.post(CHAT, messages=MESSAGES, logprobs=True, top_logprobs=count)).json()
        text = (await served.post(COMPLETIONS, prompt="x", logprobs=count)).json()
        scored = (await served.post(COMPLETIONS, prompt="xyz", prompt_logprobs=count, max_tokens=0)).json()
    every = len(tokenizer) if count == -1 else count
    assert [len(entry["top_logprobs"]) for entry in chat["choices"][0]["logprobs"]["content"]] == [every] * 3
    assert [len(top) for top in text["choices"][0]["logprobs"]["top_logprobs"]] == [max(1, every)] * 3
    assert [position and len(position) for position in scored["choices"][0]["prompt_logprobs"]] == [None, *[max(1, every)] * 2]


async def test_all_rivals_are_more_than_a_server_gives_by_default(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        response = await served.post(CHAT, messages=MESSAGES, logprobs=True, top_logprobs=-1)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "top_logprobs")


async def test_tokens_are_named_by_id_where_the_server_or_the_request_says_so(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, "a", options=ServerOptions(return_tokens_as_token_ids=True)) as served:
        by_server = (await served.post(COMPLETIONS, prompt="x", logprobs=1)).json()["choices"][0]["logprobs"]
        by_request = (await served.post(COMPLETIONS, prompt="x", logprobs=1, return_tokens_as_token_ids=False)).json()
    assert by_server["tokens"][0] == f"token_id:{tokenizer.encode('a')[0]}"
    assert by_request["choices"][0]["logprobs"]["tokens"][0] == "a"


async def test_the_role_is_the_server_s_or_that_of_the_message_that_goes_on(tokenizer: Tokenizer) -> None:
    history = [*MESSAGES, {"role": "narrator", "content": [{"type": "text", "text": "once "}]}]
    async with in_process(tokenizer, options=ServerOptions(response_role="bot")) as served:
        new = (await served.post(CHAT, messages=MESSAGES)).json()["choices"][0]["message"]
        going_on = (await served.post(CHAT, messages=history, continue_final_message=True, echo=True)).json()["choices"][0]["message"]
        events = await served.events(CHAT, messages=history, continue_final_message=True, echo=True)
    assert (new["role"], going_on["role"]) == ("bot", "narrator")
    assert going_on["content"] == "once hello world"
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == "once hello world"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_usage_can_be_forced_on_every_stream(tokenizer: Tokenizer, path: str) -> None:
    async with in_process(tokenizer, options=ServerOptions(enable_force_include_usage=True)) as served:
        whole = (await served.post(path, **BOTH)).json()
        forced = await served.events(path, **BOTH)
        always = await served.events(path, **BOTH, stream_options={"continuous_usage_stats": True})
    assert forced[-2]["usage"] == always[-2]["usage"] == whole["usage"]
    assert forced[-2]["choices"] == []
    assert [event["usage"] for event in forced[:-2]] == [None] * (len(forced) - 2)
    assert all(event["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"] for event in always[:-1])


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_times_are_told_where_they_belong_to_one_answer(tokenizer: Tokenizer, path: str, include: bool) -> None:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if include else {}
    async with in_process(tokenizer, options=ServerOptions(enable_per_request_metrics=True)) as served:
        whole = (await served.post(path, **BOTH)).json()
        events = (await served.events(path, **BOTH, **options))[:-1]
        several = (await served.post(path, **BOTH, n=2, seed=1)).json()
        several_events = (await served.events(path, **BOTH, n=2, seed=1, **options))[:-1]
    names = {"time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second", "speculative_decoding"}
    for told in (whole["metrics"], events[-1]["metrics"]):
        assert told.keys() == names
        assert told["time_to_first_token_ms"] >= 0
        assert told["generation_time_ms"] > 0
        assert told["tokens_per_second"] > 0
    assert all("metrics" not in event for event in [*events[:-1], several, *several_events])
    async with in_process(tokenizer) as served:
        assert "metrics" not in (await served.post(path, **BOTH)).json()


async def test_the_first_chunk_of_each_completion_tells_its_prompt(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, "ok") as served:
        events = (await served.events(COMPLETIONS, prompt=["a", "bc"], return_token_ids=True))[:-1]
    for index, prompt in enumerate(("a", "bc")):
        own = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert own[0]["prompt_token_ids"] == tokenizer.encode(prompt)
        assert all("prompt_token_ids" not in choice for choice in own[1:])
        assert [t for choice in own for t in choice["token_ids"]][:2] == tokenizer.encode("ok")


async def test_a_prompt_alone_is_checked_like_any(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        outside = await served.post(COMPLETIONS, prompt=[10**6], echo=True, max_tokens=0)
        hot = await served.post(COMPLETIONS, prompt="x", echo=True, max_tokens=0, temperature=9)
        longest = await served.post(COMPLETIONS, prompt="x" * 256, echo=True, max_tokens=0)
        scored = await served.post(COMPLETIONS, prompt="x" * 256, prompt_logprobs=0, max_tokens=0)
        full = await served.post(COMPLETIONS, prompt="x" * 256)
        longer = await served.post(COMPLETIONS, prompt="x" * 257, echo=True, max_tokens=0)
    assert [r.status_code for r in (outside, hot, longest, scored, full, longer)] == [400, 400, 200, 200, 400, 400]
    assert longest.json()["choices"][0]["text"] == "x" * 256
    assert len(scored.json()["choices"][0]["prompt_logprobs"]) == 256


async def test_two_requests_of_one_name_are_two(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, lambda request: f"seed {request.seed}") as served:
        replies = await asyncio.gather(
            *(served.http.post(CHAT, json={"messages": MESSAGES, "seed": seed}, headers={"x-request-id": "mine"}) for seed in (1, 2)),
            served.post(CHAT, messages=MESSAGES, seed=3, request_id="mine"),
        )
        assert served.llm.num_unfinished == 0
    assert [r.json()["choices"][0]["message"]["content"] for r in replies] == ["seed 1", "seed 2", "seed 3"]
    assert {r.json()["id"] for r in replies} == {"chatcmpl-mine"}
    assert len({request.request_id for request in served.engine.added}) == 3
