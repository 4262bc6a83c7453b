"""Reports E: what is too long, and what counts when nothing was said."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.reports.conftest import CONTEXT, MOST_NEW_TOKENS
from tests.reports.servers import CHAT, COMPLETIONS, Server, parse_events, says, text_of

TOO_LONG = CONTEXT + 1
FRAME = len("[user]z") + 1  # tokens of a conversation beside its one content of letters; the prompt ends with its last letter again
DOCS = Path(__file__).parents[2] / "docs"


def ids(length: int) -> list[int]:
    return [300 + place % 97 for place in range(length)]


def conversation(length: int) -> list[dict[str, str]]:
    """One whose prompt has so many tokens."""
    return says("z", "x" * (length - FRAME - 1))


def bodies(length: int, **fields: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Every way to send a prompt of so many tokens: endpoint, the field at fault, body."""
    return [
        (CHAT, "messages", {"messages": conversation(length), **fields}),
        (COMPLETIONS, "prompt", {"prompt": ids(length), **fields}),
        (COMPLETIONS, "prompt", {"prompt": "x" * (length - 1), **fields}),  # and the token that begins every prompt
        (COMPLETIONS, "prompt", {"prompt": [[300], ids(length)], **fields}),
    ]


def test_e1_a_prompt_that_is_too_long_is_refused_at_once_and_holds_up_nobody(numbers: Server) -> None:
    for path, parameter, body in bodies(TOO_LONG):
        assert numbers.refusal(path, **body)["param"] == parameter
        assert numbers.ask(COMPLETIONS, prompt="short", max_tokens=1)["choices"][0]["finish_reason"]
    assert numbers.metric("num_requests_waiting") == 0


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 5}, {"n": 2}, {"stream": True}], ids=str)
def test_e2_a_prompt_that_is_too_long_is_told_both_numbers(numbers: Server, fields: dict[str, Any]) -> None:
    for path, _, body in bodies(TOO_LONG, **fields):
        message = numbers.refusal(path, **body)["message"]
        assert str(CONTEXT) in message
        assert str(TOO_LONG) in message


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("length", [CONTEXT - 1, CONTEXT])
def test_e3_a_prompt_as_long_as_the_context_can_be_scored(numbers: Server, path: str, length: int) -> None:
    body = {"messages": conversation(length), "prompt": ids(length)}
    answer = numbers.ask(path, **body, max_tokens=0, prompt_logprobs=1)
    (choice,) = answer["choices"]
    scored = answer["prompt_logprobs"] if path == CHAT else choice["prompt_logprobs"]
    assert len(scored) == answer["usage"]["prompt_tokens"] == length
    assert all(scored[1:])
    assert (text_of(choice), choice["finish_reason"], answer["usage"]["completion_tokens"]) == ("", "length", 0)


@pytest.mark.parametrize("stream", [False, True])
def test_e3_an_echo_of_the_whole_context_is_scored(numbers: Server, stream: bool) -> None:
    body: dict[str, Any] = {"prompt": ids(CONTEXT), "echo": True, "logprobs": 1, "max_tokens": 0}
    if stream:
        choices = [choice for event in numbers.stream(COMPLETIONS, **body) for choice in event["choices"]]
    else:
        choices = numbers.ask(COMPLETIONS, **body)["choices"]
    assert sum(len(choice["logprobs"]["token_logprobs"]) for choice in choices) == CONTEXT
    assert choices[-1]["finish_reason"] == "length"
    plain = numbers.ask(COMPLETIONS, prompt=ids(CONTEXT), echo=True, max_tokens=0)["choices"][0]
    assert plain["text"] == "".join(map(text_of, choices))


@pytest.mark.parametrize("fields", [{"max_tokens": 1}, {"max_tokens": None}, {"max_tokens": 1, "prompt_logprobs": 1}], ids=str)
def test_e3_a_prompt_as_long_as_the_context_leaves_no_room_for_a_token(numbers: Server, fields: dict[str, Any]) -> None:
    for path, parameter, body in bodies(CONTEXT, **fields):
        error = numbers.refusal(path, **body)
        assert error["param"] == parameter
        assert "no room for an output token" in error["message"]
        assert str(CONTEXT) in error["message"]


@pytest.mark.parametrize("max_tokens", [1, 5, None])
def test_e3_a_prompt_one_token_shorter_leaves_room_for_one(numbers: Server, max_tokens: int | None) -> None:
    for path, _, body in bodies(CONTEXT - 1, max_tokens=max_tokens, ignore_eos=True)[:3]:
        answer = numbers.ask(path, **body)
        assert answer["usage"]["completion_tokens"] == 1
        assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("length", [CONTEXT, TOO_LONG, 2 * CONTEXT])
def test_e4_nobody_is_told_of_a_negative_max_tokens(numbers: Server, length: int) -> None:
    for path, parameter, body in bodies(length):
        error = numbers.refusal(path, **body)
        assert error["param"] == parameter
        assert {str(CONTEXT), str(length)} <= set(re.findall(r"\d+", error["message"]))
        assert not re.search(r"-\d", error["message"])
        assert "max_tokens" not in error["message"]


def test_e5_the_model_s_max_new_tokens_bounds_a_chat_as_documented(numbers: Server) -> None:
    def length(path: str, **fields: Any) -> int:
        body = {"messages": says("z"), "prompt": "z", "temperature": 0, "ignore_eos": True, **fields}
        return int(numbers.ask(path, **body)["usage"]["completion_tokens"])

    assert length(CHAT) == length(CHAT, max_tokens=MOST_NEW_TOKENS + 20) == MOST_NEW_TOKENS
    assert length(CHAT, max_completion_tokens=MOST_NEW_TOKENS + 20) == MOST_NEW_TOKENS
    assert length(CHAT, max_tokens=20) == 20
    assert length(COMPLETIONS) == 16
    assert length(COMPLETIONS, max_tokens=MOST_NEW_TOKENS + 20) == MOST_NEW_TOKENS
    assert "max_new_tokens" in (DOCS / "limits.md").read_text()


def test_e6_a_prompt_is_cut_only_by_one_who_asks_for_it(numbers: Server) -> None:
    for path, _, body in bodies(2 * CONTEXT):
        numbers.refusal(path, **body)
    for path, _, body in bodies(2 * CONTEXT, truncate_prompt_tokens=50, max_tokens=2)[:3]:
        assert numbers.ask(path, **body)["usage"]["prompt_tokens"] == 50
    kept = numbers.ask(COMPLETIONS, prompt=ids(2 * CONTEXT), truncate_prompt_tokens=-1, max_tokens=4, ignore_eos=True)["usage"]
    assert (kept["prompt_tokens"], kept["completion_tokens"]) == (CONTEXT - 4, 4)
    last = numbers.ask(COMPLETIONS, prompt=ids(2 * CONTEXT), truncate_prompt_tokens=3, max_tokens=1, return_token_ids=True)
    assert last["choices"][0]["prompt_token_ids"] == ids(2 * CONTEXT)[-3:]


@pytest.mark.parametrize(("path", "required"), [(CHAT, "messages"), (COMPLETIONS, "prompt")])
def test_e7_null_is_as_good_as_absent(numbers: Server, path: str, required: str) -> None:
    reference = numbers.get("/openapi.json").json()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    optional = reference["properties"].keys() - {required}
    assert {"max_tokens", "n", "stop", "stream", "stream_options", "logit_bias", "seed", "model"} <= optional
    openai = {"response_format", "tools", "tool_choice", "best_of", "suffix", "metadata", "store", "service_tier", "user", "modalities"}
    body = {"messages": says("z"), "prompt": "z"}
    limit: dict[str, Any] = {"temperature": 0, "max_tokens": 2}
    expected = text_of(numbers.ask(path, **body, **limit)["choices"][0])
    for name in sorted(optional | openai):
        assert text_of(numbers.ask(path, **body, **limit | {name: None} if name not in limit else limit)["choices"][0]) == expected, name
    everything = dict.fromkeys(optional | openai)
    assert numbers.ask(path, **body, **everything | limit)["choices"][0]["finish_reason"] == "length"
    usage = numbers.ask(path, **body, **everything)["usage"]
    assert usage["completion_tokens"] <= (MOST_NEW_TOKENS if path == CHAT else 16)


def test_e8_too_long_is_400_wherever_it_is_sent(numbers: Server) -> None:
    shapes: list[dict[str, Any]] = [{}, {"stream": True}, {"n": 3}, {"use_beam_search": True, "n": 2, "max_tokens": 2}]
    shapes += [
        {"echo": True},
        {"logprobs": None, "prompt_logprobs": 1, "max_tokens": 0},
        {"echo": True, "max_tokens": 0, "prompt_logprobs": 0},
    ]
    for shape in shapes:
        for path, parameter, body in bodies(TOO_LONG, **shape):
            error = numbers.refusal(path, **body)
            assert (error["type"], error["param"]) == ("BadRequestError", parameter), shape
    assert numbers.refusal(COMPLETIONS, prompt=ids(TOO_LONG), echo=True, max_tokens=0)["param"] == "prompt"
    events = parse_events(numbers.post(COMPLETIONS, prompt=ids(4), stream=True, max_tokens=1).text)
    assert events[-1] == "[DONE]"
    assert numbers.lives()
