"""/v1/chat/completions in process: shapes, streams, usage, logprobs, refusals."""

import json
import re
from typing import Any

import pytest

from octavo import __version__
from octavo.config.options import ServerOptions
from octavo.protocol.columns import unpack
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import in_process

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


async def test_a_whole_answer_has_openai_s_shape(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        response = await served.post(CHAT, model="scripted", messages=MESSAGES)
        assert response.status_code == 200
        reply = response.json()
        prompt = served.engine.added[0]
    assert reply["id"].startswith("chatcmpl-")
    assert reply["object"] == "chat.completion"
    assert reply["model"] == "scripted"
    assert re.fullmatch(rf"octavo-{re.escape(__version__)}-[0-9a-f]{{8}}", reply["system_fingerprint"])
    (choice,) = reply["choices"]
    assert choice["index"] == 0
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "hello world"
    assert (choice["finish_reason"], choice["stop_reason"], choice["logprobs"]) == ("stop", None, None)
    num_prompt, num_answer = len(unpack(prompt.token_ids)), len(tokenizer.encode("hello world")) + 1
    assert reply["usage"] == {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_answer,
        "total_tokens": num_prompt + num_answer,
        "prompt_tokens_details": None,
    }
    assert tokenizer.decode(unpack(prompt.token_ids).tolist()) == "<|start|>user\nhi<|end|>\n<|start|>assistant\n"


async def test_a_chat_fills_the_context_unless_told_otherwise(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        await served.post(CHAT, messages=MESSAGES)
        await served.post(CHAT, messages=MESSAGES, max_tokens=5)
        await served.post(CHAT, messages=MESSAGES, max_tokens=5, max_completion_tokens=4)
        found = [(r.sampling.max_tokens if r.sampling else None, len(unpack(r.token_ids))) for r in served.engine.added]
    assert found[0][0] == 256 - found[0][1]
    assert [tokens for tokens, _ in found[1:]] == [5, 4]


@pytest.mark.parametrize("per_step", [1, 3])
@pytest.mark.parametrize("stop", [None, "wor"])
async def test_a_stream_says_what_the_whole_answer_says(tokenizer: Tokenizer, per_step: int, stop: str | None) -> None:
    async with in_process(tokenizer, "hello 😀 world", per_step=per_step) as served:
        body: dict[str, Any] = {"messages": MESSAGES, "stop": stop, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}
        whole = (await served.post(CHAT, **body)).json()
        events = await served.events(CHAT, **body, stream_options={"include_usage": True})
    assert events[-1] == "[DONE]"
    *chunks, usage = events[:-1]
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    assert all(c["usage"] is None and c["object"] == "chat.completion.chunk" and c["id"] == chunks[0]["id"] for c in chunks)
    choices = [c["choices"][0] for c in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert all(c["finish_reason"] is None for c in choices[:-1])
    assert choices[-1]["delta"] == {}
    final = whole["choices"][0]
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == (final["finish_reason"], final["stop_reason"])
    middle = choices[1:-1]
    assert all(c["delta"].get("content") for c in middle)
    assert all("\ufffd" not in c["delta"]["content"] for c in middle)
    assert "".join(c["delta"]["content"] for c in middle) == final["message"]["content"]
    assert [t for c in choices for t in c.get("token_ids", [])] == final["token_ids"]
    streamed = [entry for c in choices if c["logprobs"] for entry in c["logprobs"]["content"]]
    assert streamed == final["logprobs"]["content"]


async def test_usage_is_told_in_the_last_chunk_only_or_always_or_never(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        never = await served.events(CHAT, messages=MESSAGES)
        always = await served.events(CHAT, messages=MESSAGES, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert all("usage" not in e for e in never[:-1])
    counts = [e["usage"]["completion_tokens"] for e in always[:-1]]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == len(tokenizer.encode("hello world")) + 1


async def test_n_choices_each_have_their_own_role_text_and_end(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, lambda request: f"seed {request.seed}") as served:
        body: dict[str, Any] = {"messages": MESSAGES, "n": 3, "seed": 4}
        whole = (await served.post(CHAT, **body)).json()
        events = (await served.events(CHAT, **body))[:-1]
    texts = [c["message"]["content"] for c in whole["choices"]]
    assert texts == ["seed 4", "seed 5", "seed 6"]
    assert [c["index"] for c in whole["choices"]] == [0, 1, 2]
    for index, text in enumerate(texts):
        own = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(c["delta"].get("content", "") for c in own) == text
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == ["stop"]


async def test_logprobs_have_bytes_and_as_many_rivals_as_asked(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, "a😀") as served:
        none = (await served.post(CHAT, messages=MESSAGES, logprobs=True)).json()["choices"][0]["logprobs"]["content"]
        two = (await served.post(CHAT, messages=MESSAGES, logprobs=True, top_logprobs=2)).json()["choices"][0]["logprobs"]["content"]
        ids = (await served.post(CHAT, messages=MESSAGES, logprobs=True, return_tokens_as_token_ids=True)).json()
    assert all(entry["top_logprobs"] == [] for entry in none)
    assert [len(entry["top_logprobs"]) for entry in two] == [2] * len(two)
    assert bytes(b for entry in two[:-1] for b in entry["bytes"]).decode() == "a😀"
    assert "".join(entry["token"] for entry in two[:-1]) == "a😀"
    assert two[0]["top_logprobs"][0]["token"] == "a"
    assert two[0]["logprob"] == -0.5
    assert ids["choices"][0]["logprobs"]["content"][0]["token"] == f"token_id:{tokenizer.encode('a')[0]}"


async def test_defaults_come_from_the_generation_config_where_a_field_is_missing(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, default_sampling={"temperature": 0.6, "top_k": 20, "max_tokens": 9}) as served:
        await served.post(CHAT, messages=MESSAGES, top_k=5)
        await served.post(CHAT, messages=MESSAGES, temperature=0, max_tokens=12)
        first, second = (r.sampling for r in served.engine.added)
    assert first is not None
    assert second is not None
    assert (first.temperature, first.top_k, first.max_tokens) == (0.6, 5, 9)
    assert (second.temperature, second.max_tokens) == (0.0, 9)


async def test_content_parts_are_text_and_continuing_goes_on_in_the_last_message(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
        await served.post(CHAT, messages=MESSAGES)
        await served.post(CHAT, messages=parts)
        started = [*MESSAGES, {"role": "assistant", "content": "well, "}]
        reply = (await served.post(CHAT, messages=started, continue_final_message=True, echo=True)).json()
        events = await served.events(CHAT, messages=started, continue_final_message=True, echo=True)
        first, second, third, _ = (unpack(r.token_ids).tolist() for r in served.engine.added)
    assert first == second
    assert tokenizer.decode(third).endswith("<|start|>assistant\nwell, ")
    assert reply["choices"][0]["message"]["content"] == "well, hello world"
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == "well, hello world"


@pytest.mark.parametrize(
    ("body", "status", "parameter", "words"),
    [
        ({"messages": []}, 400, "messages", "at least 1"),
        ({}, 400, "messages", "required"),
        ({"messages": "x"}, 400, "messages", "array"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "messages", ""),
        ({"messages": MESSAGES, "model": "nope"}, 404, "model", "does not exist"),
        ({"messages": MESSAGES, "temperature": 3}, 400, "temperature", "temperature"),
        ({"messages": MESSAGES, "temperature": "hot"}, 400, "temperature", "temperature"),
        ({"messages": MESSAGES, "top_p": 0}, 400, "top_p", "top_p"),
        ({"messages": MESSAGES, "top_k": 0.5}, 400, "top_k", "integer"),
        ({"messages": MESSAGES, "top_k": "5"}, 400, "top_k", "integer"),
        ({"messages": MESSAGES, "top_k": True}, 400, "top_k", "integer"),
        ({"messages": MESSAGES, "top_k": -2}, 400, "top_k", "top_k"),
        ({"messages": MESSAGES, "n": 5_000_000}, 400, "n", "16384"),
        ({"messages": MESSAGES, "logit_bias": {"999999": 5}}, 400, "logit_bias", "outside"),
        ({"messages": MESSAGES, "logit_bias": {"abc": 5}}, 400, "logit_bias", "abc"),
        ({"messages": MESSAGES, "stop": ["a", "b", "c", "d", "e"]}, 400, "stop", "at most 4"),
        ({"messages": MESSAGES, "stop": [""]}, 400, "stop", "non-empty"),
        ({"messages": MESSAGES, "stop": [None]}, 400, "stop", ""),
        ({"messages": MESSAGES, "stop_token_ids": [None]}, 400, "stop_token_ids", ""),
        ({"messages": MESSAGES, "top_logprobs": 2}, 400, "top_logprobs", "logprobs=true"),
        ({"messages": MESSAGES, "logprobs": True, "top_logprobs": 1_000_000}, 400, "top_logprobs", "at most 20"),
        ({"messages": MESSAGES, "max_tokens": 0}, 400, "max_tokens", "at least 1"),
        ({"messages": MESSAGES, "min_tokens": 9, "max_tokens": 3}, 400, "min_tokens", "exceed"),
        ({"messages": MESSAGES, "stream_options": {"include_usage": True}}, 400, "stream_options", "stream=true"),
        ({"messages": MESSAGES, "tools": []}, 400, "tools", "empty list"),
        ({"messages": MESSAGES, "tools": [{"type": "function"}]}, 400, "tools", "tools[0].function must be an object"),
        ({"messages": MESSAGES, "response_format": {"type": "yaml"}}, 400, "response_format", "response_format: type must be"),
        ({"messages": MESSAGES, "structured_outputs": {"regexp": "a"}}, 400, "structured_outputs", "has no 'regexp'"),
        ({"messages": MESSAGES, "chat_template": "{{ 1 }}"}, 400, "chat_template", "takes no chat template"),
        ({"messages": MESSAGES, "chat_template_kwargs": {"tokenize": True}}, 400, "chat_template_kwargs", "tokenize"),
        ({"messages": MESSAGES, "priority": 2}, 400, "priority", "priority"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, 400, "messages", "maximum context length is 256 tokens"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "messages", "image_url"),
    ],
)
async def test_wrong_requests_are_named_and_the_engine_sees_none(
    tokenizer: Tokenizer, body: dict[str, Any], status: int, parameter: str, words: str
) -> None:
    async with in_process(tokenizer) as served:
        response = await served.post(CHAT, **body)
        assert served.engine.added == []
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["code"] == status
    assert error["type"] == {400: "BadRequestError", 404: "NotFoundError"}[status]
    assert words in error["message"]
    assert error["param"] == parameter


@pytest.mark.parametrize("data", [b"{:", b"", b"[]", b"null", b"[" * 200_000, b'{"messages": "\xff"}', b'{"messages": "\\ud800"}'])
async def test_bodies_that_are_not_json_objects_are_400(tokenizer: Tokenizer, data: bytes) -> None:
    async with in_process(tokenizer) as served:
        response = await served.http.post(CHAT, content=data, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize("name", ["temperature", "top_p", "presence_penalty"])
async def test_numbers_that_are_none_are_400(tokenizer: Tokenizer, name: str, number: str) -> None:
    async with in_process(tokenizer) as served:
        data = json.dumps({"messages": MESSAGES})[:-1] + f', "{name}": {number}}}'
        response = await served.http.post(CHAT, content=data.encode())
    assert response.status_code == 400
    assert response.json()["error"]["param"] == name


async def test_null_is_absent_and_unknown_fields_pass(tokenizer: Tokenizer) -> None:
    names = [
        "stop",
        "tools",
        "logit_bias",
        "seed",
        "max_tokens",
        "n",
        "temperature",
        "stream",
        "stream_options",
        "response_format",
        "top_logprobs",
    ]
    async with in_process(tokenizer) as served:
        response = await served.post(
            CHAT, messages=MESSAGES, **dict.fromkeys(names), store=True, metadata={"a": 1}, my_own_field="x", user="me"
        )
        harmless = await served.post(CHAT, messages=MESSAGES, response_format={"type": "text"}, tool_choice="auto", modalities=["text"])
    assert response.status_code == 200, response.text
    assert harmless.status_code == 200, harmless.text


async def test_the_engine_s_failure_on_a_request_is_500_or_an_event(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        served.engine.fails = {"chatcmpl-": "logits hold NaN"}
        response = await served.post(CHAT, messages=MESSAGES)
        events = await served.events(CHAT, messages=MESSAGES)
    assert response.status_code == 500
    assert "NaN" in response.json()["error"]["message"]
    assert events[0]["error"]["code"] == 500
    assert events[-1] == "[DONE]"


async def test_what_the_engine_does_not_let_in_is_400(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        served.engine.refusal = "the request needs more blocks than the cache has"
        response = await served.post(CHAT, messages=MESSAGES)
        assert served.llm.num_unfinished == 0
    assert response.status_code == 400
    assert "more blocks" in response.json()["error"]["message"]


async def test_cached_tokens_are_told_when_the_server_is_asked_to(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, options=ServerOptions(enable_prompt_tokens_details=True)) as served:
        reply = (await served.post(CHAT, messages=MESSAGES)).json()
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("messages", {"messages": [{"role": "user", "content": "x" * 300}]}),
        ("allowed_token_ids", {"allowed_token_ids": [10**6]}),
        ("priority", {"priority": 3}),
    ],
)
async def test_a_wrong_beam_search_is_refused_before_a_stream_begins(
    tokenizer: Tokenizer, field: str, wrong: dict[str, Any], stream: bool
) -> None:
    async with in_process(tokenizer, "") as served:
        response = await served.post(CHAT, **{"messages": MESSAGES, "n": 2, "use_beam_search": True, "stream": stream, **wrong})
        assert served.engine.added == []
    assert (response.status_code, response.json()["error"]["param"]) == (400, field)


async def test_beam_search_gives_n_choices(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, "") as served:
        body: dict[str, Any] = {"messages": MESSAGES, "n": 2, "use_beam_search": True, "max_tokens": 3, "ignore_eos": True}
        reply = (await served.post(CHAT, **body)).json()
        events = await served.events(CHAT, **body)
    assert [c["index"] for c in reply["choices"]] == [0, 1]
    assert [c["finish_reason"] for c in reply["choices"]] == ["length"] * 2
    assert events[-1] == "[DONE]"
