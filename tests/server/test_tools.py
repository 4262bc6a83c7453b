"""Calls and reasoning in /v1/chat/completions, in process: whole and in pieces they say the same, and every field does what it says."""

import logging
from typing import Any

import pytest

from octavo.config.options import ServerOptions
from octavo.errors import ConfigError, OctavoError
from octavo.protocol.columns import unpack
from octavo.server.state import ServerState
from octavo.text.tokenizer import Tokenizer
from tests.server import talking
from tests.server.serving import Served, in_process
from tests.server.talking import CHAT, HERMES, NOW, TOOLS, USER, WEATHER, added_up, arguments_of, call_text, without_ids

PARIS = call_text("get_weather", '{"city": "Pa\\"ris 😀", "days": 2}')
TWO = call_text("get_weather", '{"city": "Rome"}') + "\n" + call_text("now", "{}")
ANSWERS = {
    "a call": PARIS,
    "text, a call": "Let me see.\n\n" + PARIS,
    "two calls": TWO,
    "thought, text": "<think>\nhm 9.8, hm\n</think>\n\nplain text",
    "thought, text, two calls": "<think>\nI call.\n</think>\n\nNow: " + TWO,
    "a thought without an end": "<think>\nit goes on and on",
    "text": "plain text with {braces} and <tags>",
    "no call": 'a <tool_call> {"x": 1} is none',
    "an unknown function": call_text("rm", '{"all": true}'),
}


@pytest.fixture(scope="module", params=[False, True], ids=["spelled", "by id"])
def speaker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer that spells markers, and one that has them as tokens."""
    return talking.talking_tokenizer(tmp_path_factory.mktemp("speaker"), by_id=request.param)


def serving(tokenizer: Tokenizer, script: Any, options: ServerOptions = HERMES, **changes: Any) -> Any:
    return in_process(tokenizer, script, options, **{"reasoning_parser": "qwen3", **changes})


async def both(served: Served, **body: Any) -> tuple[dict[str, Any], list[Any]]:
    """The whole answer and the events of the same request streamed."""
    given = {"messages": USER, "tools": TOOLS, **body}
    response = await served.post(CHAT, **given)
    assert response.status_code == 200, response.text
    return response.json(), await served.events(CHAT, **given)


@pytest.mark.parametrize("per_step", [1, 3, 50])
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_stream_says_what_the_whole_answer_says(speaker: Tokenizer, name: str, per_step: int) -> None:
    async with serving(speaker, ANSWERS[name], per_step=per_step) as served:
        usage = {"include_usage": True}
        body: dict[str, Any] = {"logprobs": True, "return_token_ids": True}
        whole = (await served.post(CHAT, messages=USER, tools=TOOLS, **body)).json()
        events = await served.events(CHAT, messages=USER, tools=TOOLS, **body, stream_options=usage)
    choice, streamed = whole["choices"][0], added_up(events)
    assert without_ids(streamed["message"]) == without_ids(choice["message"])
    assert streamed["finish_reason"] == choice["finish_reason"]
    assert streamed["logprobs"] == choice["logprobs"]["content"]
    assert streamed["token_ids"] == choice["token_ids"]
    assert len(choice["logprobs"]["content"]) == len(choice["token_ids"]) == whole["usage"]["completion_tokens"]
    assert events[-2]["usage"] == whole["usage"]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-3]["choices"][0]["delta"] == {}


@pytest.mark.parametrize(
    ("name", "reasoning", "content", "calls", "reason"),
    [
        ("a call", None, None, [("get_weather", {"city": 'Pa"ris 😀', "days": 2})], "tool_calls"),
        ("text, a call", None, "Let me see.", [("get_weather", {"city": 'Pa"ris 😀', "days": 2})], "tool_calls"),
        ("two calls", None, None, [("get_weather", {"city": "Rome"}), ("now", {})], "tool_calls"),
        ("thought, text", "hm 9.8, hm", "plain text", [], "stop"),
        ("thought, text, two calls", "I call.", "Now:", [("get_weather", {"city": "Rome"}), ("now", {})], "tool_calls"),
        ("a thought without an end", "it goes on and on", None, [], "stop"),
        ("text", None, ANSWERS["text"], [], "stop"),
        ("no call", None, ANSWERS["no call"], [], "stop"),
        ("an unknown function", None, ANSWERS["an unknown function"], [], "stop"),
    ],
)
async def test_an_answer_is_told_in_its_parts(
    speaker: Tokenizer, name: str, reasoning: str | None, content: str | None, calls: list[Any], reason: str
) -> None:
    async with serving(speaker, ANSWERS[name]) as served:
        reply, _ = await both(served)
    choice = reply["choices"][0]
    message = choice["message"]
    assert (message["reasoning"], message["content"]) == (reasoning, content)
    assert arguments_of(message) == calls
    assert choice["finish_reason"] == reason
    assert len({call["id"] for call in message["tool_calls"]}) == len(calls)
    assert all(call["id"].startswith("chatcmpl-tool-") and call["type"] == "function" for call in message["tool_calls"])


async def test_arguments_are_the_model_s_own_text(speaker: Tokenizer) -> None:
    arguments = '{"city":  "\\u00e9\\n", "days" : 1.0 , "more": [ [{"a": {}}], "}}"] }'
    async with serving(speaker, call_text("get_weather", arguments)) as served:
        reply, events = await both(served)
    assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == arguments
    pieces = [p["function"]["arguments"] for e in events[:-1] for p in e["choices"][0]["delta"].get("tool_calls", [])]
    assert pieces[0] == ""
    assert len(pieces) > 10
    assert "".join(pieces) == arguments


@pytest.mark.parametrize("per_step", [1, 50])
async def test_without_parallel_calls_the_answer_ends_where_a_second_one_begins(speaker: Tokenizer, per_step: int) -> None:
    async with serving(speaker, "x " + TWO + " and more" * 9, per_step=per_step) as served:
        reply, events = await both(served, parallel_tool_calls=False)
        more, _ = await both(served)
        assert len(served.engine.aborted) == 2  # the engine has not come to the end
    choice, streamed = reply["choices"][0], added_up(events)
    assert arguments_of(choice["message"]) == [("get_weather", {"city": "Rome"})]
    assert without_ids(streamed["message"]) == without_ids(choice["message"])
    assert choice["finish_reason"] == streamed["finish_reason"] == "tool_calls"
    assert reply["usage"]["completion_tokens"] < more["usage"]["completion_tokens"]


# --- reasoning


async def test_reasoning_is_counted_and_left_out_where_nobody_wants_it(speaker: Tokenizer) -> None:
    text = ANSWERS["thought, text, two calls"]
    async with serving(speaker, text) as served:
        shown, _ = await both(served)
        hidden, events = await both(served, include_reasoning=False)
    num_marker = 0 if speaker.token_to_id("<think>") else len("<think>")  # a token of the vocabulary says what it is
    num_thought = len(speaker.encode("\nI call."))
    assert shown["usage"]["completion_tokens_details"] == {"reasoning_tokens": num_thought + num_marker}
    assert hidden["usage"] == shown["usage"]
    assert hidden["choices"][0]["message"]["reasoning"] is None
    assert hidden["choices"][0]["message"]["content"] == added_up(events)["message"]["content"] == "Now:"
    assert added_up(events)["message"]["reasoning"] is None


@pytest.mark.parametrize(
    ("field", "names"),
    [("reasoning", {"reasoning"}), ("reasoning_content", {"reasoning_content"}), ("both", {"reasoning", "reasoning_content"})],
)
async def test_reasoning_is_told_under_the_name_that_clients_read(speaker: Tokenizer, field: str, names: set[str]) -> None:
    async with serving(speaker, ANSWERS["thought, text"], ServerOptions(reasoning_field=field)) as served:
        reply, events = await both(served, tools=None)
    message = reply["choices"][0]["message"]
    assert {name for name in message if name.startswith("reasoning")} == names
    assert {message[name] for name in names} == {"hm 9.8, hm"}
    told = {name: "".join(e["choices"][0]["delta"].get(name, "") for e in events[:-1]) for name in names}
    assert set(told.values()) == {"hm 9.8, hm"}


async def test_without_a_format_of_reasoning_it_is_content(speaker: Tokenizer) -> None:
    async with serving(speaker, ANSWERS["thought, text"], reasoning_parser="none") as served:
        reply, _ = await both(served)
    assert reply["choices"][0]["message"]["content"] == ANSWERS["thought, text"]
    assert "completion_tokens_details" not in reply["usage"]


async def test_a_prompt_that_closed_the_thought_leaves_content(speaker: Tokenizer) -> None:
    async with serving(speaker, "just this " + PARIS) as served:
        reply, events = await both(served, chat_template_kwargs={"enable_thinking": False})
    assert without_ids(added_up(events)["message"]) == without_ids(reply["choices"][0]["message"])
    message = reply["choices"][0]["message"]
    assert (message["reasoning"], message["content"], len(message["tool_calls"])) == (None, "just this", 1)


async def test_an_answer_that_goes_on_in_an_open_thought_goes_on_as_thought(speaker: Tokenizer) -> None:
    started = [*USER, {"role": "assistant", "content": "<think>\nfirst, "}]
    async with serving(speaker, "second</think>then") as served:
        reply, events = await both(served, messages=started, continue_final_message=True, tools=None)
        echoed, _ = await both(served, messages=[*USER, {"role": "assistant", "content": "well, "}], continue_final_message=True, echo=True)
    message = reply["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("second", "then")
    assert without_ids(added_up(events)["message"]) == without_ids(message)
    assert echoed["choices"][0]["message"]["content"].startswith("well, second")


# --- stop strings, lengths, special tokens


async def test_a_stop_string_ends_content_and_neither_a_thought_nor_arguments(speaker: Tokenizer) -> None:
    text = "<think>\n9.11 or 9.8\n</think>\n\nso " + call_text("get_weather", '{"city": "9.8"}')
    async with serving(speaker, text) as served:
        passed, events = await both(served, stop="9.8")
        ended, ended_events = await both(served, stop=["so"])
        kept, _ = await both(served, stop=["so"], include_stop_str_in_output=True)
    choice = passed["choices"][0]
    assert choice["message"]["reasoning"] == "9.11 or 9.8"
    assert arguments_of(choice["message"]) == [("get_weather", {"city": "9.8"})]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("tool_calls", None)
    assert without_ids(added_up(events)["message"]) == without_ids(choice["message"])
    choice = ended["choices"][0]
    assert (choice["message"]["reasoning"], choice["message"]["tool_calls"]) == ("9.11 or 9.8", [])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "so")
    assert without_ids(added_up(ended_events)["message"]) == without_ids(choice["message"])
    assert kept["choices"][0]["message"]["content"] == "so"


async def test_text_before_a_call_is_not_kept_back_by_a_stop_string_that_it_began(speaker: Tokenizer) -> None:
    async with serving(speaker, "abc" + PARIS) as served:
        reply, events = await both(served, stop=["bcd"])
    message = reply["choices"][0]["message"]
    assert (message["content"], len(message["tool_calls"])) == ("abc", 1)
    assert without_ids(added_up(events)["message"]) == without_ids(message)


@pytest.mark.parametrize("count", [1, 20, 60, 70, 90])
async def test_an_answer_that_is_cut_off_ends_with_length_and_shows_no_marker(speaker: Tokenizer, count: int) -> None:
    async with serving(speaker, "well " + PARIS + PARIS) as served:
        reply, events = await both(served, max_tokens=count)
    choice = reply["choices"][0]
    assert choice["finish_reason"] == added_up(events)["finish_reason"] == "length"
    assert "<" not in (choice["message"]["content"] or "")
    assert without_ids(added_up(events)["message"]) == without_ids(choice["message"])
    for call in choice["message"]["tool_calls"]:
        assert PARIS.split('"arguments": ')[1].startswith(call["function"]["arguments"].removesuffix("\ufffd"))


async def test_special_tokens_that_mean_nothing_do_not_show(tmp_path_factory: pytest.TempPathFactory) -> None:
    tokenizer = talking.talking_tokenizer(tmp_path_factory.mktemp("odd"), by_id=True)
    text = "a<|odd|>b<think>c<|odd|>d</think>e<|odd|>f" + PARIS + "<|odd|>"
    async with serving(tokenizer, text) as served:
        hidden, events = await both(served)
        shown, _ = await both(served, skip_special_tokens=False)
    message = hidden["choices"][0]["message"]
    assert (message["reasoning"], message["content"], len(message["tool_calls"])) == ("cd", "abef", 1)
    assert without_ids(added_up(events)["message"]) == without_ids(message)
    assert "<|odd|>" in shown["choices"][0]["message"]["content"]
    assert "<|end|>" not in shown["choices"][0]["message"]["content"]


async def test_a_marker_is_a_marker_by_its_token_only(tmp_path_factory: pytest.TempPathFactory) -> None:
    tokenizer = talking.talking_tokenizer(tmp_path_factory.mktemp("quoting"), by_id=True)
    quoted = [tokenizer.encode(character)[0] for character in "in `</think>` quotes"]
    ids = [tokenizer.token_to_id("<think>"), *quoted, tokenizer.token_to_id("</think>"), *tokenizer.encode("done")]
    async with serving(tokenizer, lambda request: ids) as served:
        reply, _ = await both(served)
    message = reply["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("in `</think>` quotes", "done")


async def test_n_answers_are_taken_apart_one_by_one(speaker: Tokenizer) -> None:
    def script(request: Any) -> str:
        return f"<think>\nnumber {request.seed}\n</think>\n\n" + call_text("get_weather", f'{{"days": {request.seed}}}') * (
            request.seed - 3
        )

    async with serving(speaker, script, max_model_len=512) as served:
        reply, events = await both(served, n=3, seed=4)
    for index, choice in enumerate(reply["choices"]):
        assert choice["message"]["reasoning"] == f"number {4 + index}"
        assert arguments_of(choice["message"]) == [("get_weather", {"days": 4 + index})] * (index + 1)
        assert without_ids(added_up(events, index)["message"]) == without_ids(choice["message"])
    ids = [call["id"] for choice in reply["choices"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == len(ids) == 6


# --- choices


async def test_what_the_model_may_call_is_what_the_request_offers(speaker: Tokenizer) -> None:
    async with serving(speaker, TWO) as served:
        none, _ = await both(served, tool_choice="none")
        auto, _ = await both(served, tool_choice="auto")
        free, _ = await both(served, tools=None, tool_choice=None)
        prompts = [served.llm.get_tokenizer().decode(unpack(r.token_ids).tolist()) for r in served.engine.added]
    assert none["choices"][0]["message"]["content"] == free["choices"][0]["message"]["content"] == TWO
    assert none["choices"][0]["finish_reason"] == "stop"
    assert len(auto["choices"][0]["message"]["tool_calls"]) == 2
    assert ["tools\nget_weather,now" in prompt for prompt in prompts] == [True] * 4 + [False] * 2


async def test_tools_are_not_shown_where_they_may_not_be_called_if_that_is_wished(speaker: Tokenizer) -> None:
    options = ServerOptions(tool_call_parser="hermes", exclude_tools_when_tool_choice_none=True)
    async with serving(speaker, "x", options) as served:
        await served.post(CHAT, messages=USER, tools=TOOLS, tool_choice="none")
        await served.post(CHAT, messages=USER, tools=TOOLS)
        shown = ["get_weather" in served.llm.get_tokenizer().decode(unpack(r.token_ids).tolist()) for r in served.engine.added]
    assert shown == [False, True]


@pytest.mark.parametrize(
    ("options", "body", "parameter", "words"),
    [
        (ServerOptions(), {"tools": TOOLS}, "tools", "--tool-call-parser"),
        (ServerOptions(tool_call_parser="none"), {"tools": TOOLS}, "tools", "--tool-call-parser"),
        (ServerOptions(tool_call_parser="hermes", enable_auto_tool_choice=False), {"tools": TOOLS}, "tool_choice", "--no-enable-auto"),
        (HERMES, {"tool_choice": "required"}, "tool_choice", "needs tools"),
        (HERMES, {"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "none of the tools"),
        (HERMES, {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "get_weather, now"),
        (HERMES, {"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice", "tool_choice must be"),
        (HERMES, {"tools": TOOLS, "tool_choice": {"type": "custom", "name": "f"}}, "tool_choice", "tool_choice must be"),
        (HERMES, {"tools": TOOLS, "tool_choice": "any"}, "tool_choice", "tool_choice must be"),
        (HERMES, {"tools": TOOLS, "tool_choice": 5}, "tool_choice", "tool_choice must be"),
        (HERMES, {"tools": [5]}, "tools", "tools[0]"),
        (HERMES, {"tools": [{"type": "web_search"}]}, "tools", "tools[0]"),
        (HERMES, {"tools": [{"type": "function", "function": {}}]}, "tools", "tools[0].function.name"),
        (HERMES, {"tools": [NOW, {"type": "function", "function": {"name": "a b"}}]}, "tools", "tools[1].function.name"),
        (HERMES, {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, "tools", "parameters"),
        (HERMES, {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]}, "tools", "an object"),
        (HERMES, {"tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]}, "tools", "strict"),
        (HERMES, {"tools": [{"type": "function", "function": {"name": "f", "description": 5}}]}, "tools", "description"),
        (HERMES, {"tools": [NOW, NOW]}, "tools", "two are named 'now'"),
        (HERMES, {"tools": [NOW] * 2000}, "tools", "more than 1024"),
        (HERMES, {"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls", ""),
        (HERMES, {"tools": TOOLS, "include_reasoning": 1}, "include_reasoning", ""),
        (HERMES, {"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}}, "tool_choice", "no other form"),
    ],
)
async def test_what_is_no_offer_is_refused_by_name(
    speaker: Tokenizer, options: ServerOptions, body: dict[str, Any], parameter: str, words: str
) -> None:
    async with serving(speaker, "x", options) as served:
        response = await served.post(CHAT, messages=USER, **body)
        assert served.engine.added == []
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == parameter
    assert words in error["message"]


_WRONG = {"type": "object", "properties": {"a": {"type": "nope"}}}


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": _WRONG}}}, "response_format"),
        ({"structured_outputs": {"json": _WRONG}}, "structured_outputs"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"json": {}}, "response_format": {"type": "json_object"}}, "structured_outputs"),
        ({"tools": [talking.function("f", strict=True, a={"type": "nope"})]}, "tools"),
        ({"tools": [talking.function("f", a={"type": "nope"})], "tool_choice": "required"}, "tools"),
    ],
)
async def test_a_form_that_cannot_be_is_refused_under_the_name_that_the_client_wrote(
    speaker: Tokenizer, body: dict[str, Any], parameter: str
) -> None:
    async with serving(speaker, "x") as served:
        response = await served.post(CHAT, messages=USER, **body)
        text = None if "tools" in body else await served.post("/v1/completions", prompt="x", **body)
        assert served.engine.added == []
    for each in (response, text):
        if each is not None:
            assert (each.status_code, each.json()["error"]["param"]) == (400, parameter), each.text
            assert each.json()["error"]["message"].startswith(parameter)


async def test_what_is_forced_reaches_the_engine(speaker: Tokenizer) -> None:
    strict = talking.function("f", strict=True, a={"type": "integer"})
    bodies: list[dict[str, Any]] = [
        {"tools": TOOLS},
        {"tools": [strict]},
        {"tools": TOOLS, "tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "now"}}},
        {"tools": TOOLS, "response_format": {"type": "json_object"}},
        {"tools": TOOLS, "tool_choice": "none", "response_format": {"type": "json_object"}},
        {"structured_outputs": {"choice": ["a", "b"]}},
    ]
    async with serving(speaker, "x") as served:
        for body in bodies:
            assert (await served.post(CHAT, messages=USER, **body)).status_code == 200
        forms = [request.sampling.structured_outputs for request in served.engine.added if request.sampling]
    free, called, required, named, either, alone, choice = forms
    assert free is None
    tags = ["" if form is None else form.structural_tag or "" for form in (called, required, named, either)]
    assert all("<tool_call>" in tag for tag in tags)
    assert ["triggered_tags" in tag for tag in tags] == [True, False, False, False]
    assert ["get_weather" in tag for tag in tags] == [False, True, False, True]
    assert alone is not None
    assert alone.json_object
    assert choice is not None
    assert choice.choice == ["a", "b"]


def test_a_format_that_is_none_ends_the_start() -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        ServerState(ServerOptions(tool_call_parser="hermess"))
    with pytest.raises(ConfigError, match="octavo has no tool format 'muse'"):
        ServerState(ServerOptions(tool_call_parser="muse"))


async def test_a_format_of_reasoning_that_is_none_ends_the_start(speaker: Tokenizer) -> None:
    with pytest.raises(OctavoError, match="did you mean"):
        async with serving(speaker, "x", reasoning_parser="qwen4"):
            raise AssertionError


# --- ids


@pytest.mark.parametrize(("form", "text"), [("kimi_k2", "functions.now:2"), ("mistral", "")])
async def test_ids_of_calls_are_what_the_model_s_template_reads(speaker: Tokenizer, form: str, text: str) -> None:
    section = "<|tool_call_begin|>functions.now:2<|tool_call_argument_begin|>{}<|tool_call_end|>"
    section = f"<|tool_calls_section_begin|>{section}<|tool_calls_section_end|>"
    script = section if form == "kimi_k2" else "[TOOL_CALLS]now[ARGS]{}"
    async with serving(speaker, script, ServerOptions(tool_call_parser=form)) as served:
        reply, events = await both(served)
    (call,) = reply["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "now", "arguments": "{}"}
    if text:
        assert call["id"] == text == added_up(events)["message"]["tool_calls"][0]["id"]
    else:
        assert len(call["id"]) == 9
        assert call["id"].isalnum()


# --- the history


async def test_calls_and_results_of_a_history_are_told_to_the_model(speaker: Tokenizer) -> None:
    async with serving(speaker, PARIS) as served:
        reply, _ = await both(served)
        message = reply["choices"][0]["message"]
        history = [*USER, message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "20 degrees"}]
        assert (await served.post(CHAT, messages=history, tools=TOOLS)).status_code == 200
        tokens = (await served.post("/tokenize", messages=history, tools=TOOLS)).json()["tokens"]
        prompt = unpack(served.engine.added[-1].token_ids).tolist()
        text = served.llm.get_tokenizer().decode(prompt)
    assert tokens == prompt
    assert f'[{message["tool_calls"][0]["id"]} get_weather city=Pa"ris 😀 days=2]' in text
    assert f"20 degrees({message['tool_calls'][0]['id']})" in text


async def test_effort_goes_to_the_template_in_its_own_words(speaker: Tokenizer) -> None:
    options = ServerOptions(trust_request_chat_template=True, reasoning_effort_map={"minimal": "low"})
    async with serving(speaker, "x", options) as served:
        for effort in ("minimal", "high"):
            await served.post(CHAT, messages=USER, reasoning_effort=effort, chat_template="{{ reasoning_effort }}")
        found = [served.llm.get_tokenizer().decode(unpack(r.token_ids).tolist()) for r in served.engine.added]
    assert found == ["low", "high"]


# --- what others see of it


async def test_logs_and_batches_see_calls_too(speaker: Tokenizer, caplog: pytest.LogCaptureFixture) -> None:
    options = ServerOptions(tool_call_parser="hermes", enable_log_requests=True, enable_log_outputs=True, enable_log_deltas=False)
    async with serving(speaker, PARIS, options) as served:
        with caplog.at_level(logging.INFO, "octavo.server.request_log"):
            await both(served)
        answers = [record.getMessage() for record in caplog.records if record.getMessage().startswith("answer")]
        batch = (await served.post(f"{CHAT}/batch", messages=[USER, USER], tools=TOOLS)).json()
    assert len(answers) == 2
    assert all("<tool_call>" in line and line.endswith("finish_reason tool_calls") for line in answers)
    assert [arguments_of(choice["message"])[0][0] for choice in batch["choices"]] == ["get_weather"] * 2
    assert batch["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


async def test_completions_are_text_as_it_is(speaker: Tokenizer) -> None:
    async with serving(speaker, ANSWERS["thought, text, two calls"]) as served:
        reply = (await served.post("/v1/completions", prompt="x", max_tokens=200)).json()
    assert reply["choices"][0]["text"] == ANSWERS["thought, text, two calls"]
    assert reply["choices"][0]["finish_reason"] == "stop"


async def test_a_beam_search_s_answers_are_taken_apart_too(speaker: Tokenizer) -> None:
    async with serving(speaker, "x") as served:
        response = await served.post(CHAT, messages=USER, tools=[WEATHER], use_beam_search=True, n=2, max_tokens=4)
    assert response.status_code == 200
    assert all(choice["message"]["tool_calls"] == [] for choice in response.json()["choices"])
