"""Reports B: the frames of a stream: roles, finish reasons, usage, errors, the end."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reports.servers import CHAT, COMPLETIONS, SMALL, Server, joined, reasons, says, serving, text_of
from tests.server.real_server import Reading, write_model

PATHS = [CHAT, COMPLETIONS]
WORDS = {"stop", "length", "tool_calls", "content_filter"}  # OpenAI's
ENDS: dict[str, dict[str, Any]] = {
    "its own end": {},
    "a stop string": {"stop": "wor"},
    "a stop token": {"stop_token_ids": [258]},  # " wor"
    "max_tokens": {"max_tokens": 2},
}


def request(key: str, **body: Any) -> dict[str, Any]:
    """A body that both endpoints take."""
    return {"messages": says(key), "prompt": f"say {key}", "temperature": 0, "max_tokens": 50} | body


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("end", ENDS)
def test_b1_every_choice_has_the_key_finish_reason(scripted: Server, path: str, end: str) -> None:
    for event in scripted.stream(path, **request("p", **ENDS[end])):
        assert all("finish_reason" in choice for choice in event["choices"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("end", ENDS)
def test_b2_a_finish_reason_is_null_or_a_word(scripted: Server, path: str, end: str) -> None:
    events = scripted.stream(path, **request("p", **ENDS[end]))
    found = [choice["finish_reason"] for event in events for choice in event["choices"]]
    assert set(found[:-1]) == {None}
    assert found[-1] == ("length" if end == "max_tokens" else "stop")


@pytest.mark.parametrize("path", PATHS)
def test_b3_the_model_s_own_end_is_told_once_as_stop(scripted: Server, path: str) -> None:
    events = scripted.stream(path, **request("p"))
    assert (joined(events), reasons(events)) == ("plain words, no more", ["stop"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("end", ENDS)
def test_b4_every_stream_ends_with_done(scripted: Server, path: str, end: str) -> None:
    response = scripted.post(path, stream=True, **request("p", **ENDS[end]))
    assert response.text.endswith("\n\ndata: [DONE]\n\n")
    assert response.text.count("[DONE]") == 1


def test_b4_b5_a_stream_that_the_engine_s_death_ends_says_so(tmp_path: Path) -> None:
    with serving(write_model(tmp_path), *SMALL) as server:
        streams = [Reading(server.url, path, stream=True, max_tokens=16_000) for path in PATHS]
        for stream in streams:
            assert stream.began.wait(30)
        server.child("engine.process").kill()
        for stream in streams:
            events = stream.events
            assert stream.broken is None
            assert (events[-2]["error"]["code"], events[-1]) == (500, "[DONE]")
            assert events[-2]["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
def test_b6_usage_is_in_the_last_chunk_alone(scripted: Server, path: str) -> None:
    *events, last = scripted.stream(path, **request("p", stream_options={"include_usage": True}))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] > 0
    assert all(event.get("usage") is None for event in events)
    assert all(event.get("usage") is None for event in scripted.stream(path, **request("p")))
    running = scripted.stream(path, **request("p", stream_options={"include_usage": True, "continuous_usage_stats": True}))
    assert all(event["usage"] for event in running)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("end", ENDS)
def test_b7_usage_of_a_stream_is_that_of_the_whole_answer(scripted: Server, path: str, end: str) -> None:
    body = request("p", **ENDS[end])
    *_, last = scripted.stream(path, **body, stream_options={"include_usage": True})
    expected = scripted.ask(path, **body)["usage"]
    assert last["usage"]["prompt_tokens"] > 0
    assert {**last["usage"], "prompt_tokens_details": None} == {**expected, "prompt_tokens_details": None}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "count"),
    [
        ({"stop": ["TRE\nAAAAAAAA"]}, 5),
        ({"stop": ["E"]}, 2),
        ({"n": 2, "temperature": 1.0, "seed": 3, "max_tokens": 3}, 6),
        ({"n": 2, "temperature": 1.0, "seed": 3, "stop": "TRE", "logprobs": None}, 8),
    ],
)
@pytest.mark.parametrize("continuous", [False, True])
def test_b8_completion_tokens_are_those_of_the_whole_answer(
    scripted: Server, path: str, body: dict[str, Any], count: int, continuous: bool
) -> None:
    asked = request("u", **body)
    *_, last = scripted.stream(path, **asked, stream_options={"include_usage": True, "continuous_usage_stats": continuous})
    assert last["usage"]["completion_tokens"] == scripted.ask(path, **asked)["usage"]["completion_tokens"] == count


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("end", ENDS)
def test_b9_the_chunk_that_ends_a_choice_has_no_text(scripted: Server, path: str, end: str) -> None:
    events = scripted.stream(path, **request("p", **ENDS[end]))
    choice = events[-1]["choices"][0]
    assert choice["finish_reason"] is not None
    assert text_of(choice) == ""
    if path == CHAT:
        assert choice["delta"] == {}
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"
        assert all("role" not in event["choices"][0]["delta"] for event in events[1:])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [{}, {"stop": "wor"}, {"stop_token_ids": [258]}, {"max_tokens": 1}, {"use_beam_search": True, "n": 2}])
def test_b10_finish_reasons_are_openai_s_words(scripted: Server, path: str, body: dict[str, Any]) -> None:
    asked = request("p", **body)
    assert {choice["finish_reason"] for choice in scripted.ask(path, **asked)["choices"]} <= WORDS
    events = scripted.stream(path, **asked)
    assert {reason for index in range(body.get("n", 1)) for reason in reasons(events, index)} <= WORDS
    assert reasons(events)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_b11_a_text_that_was_cut_says_length(scripted: Server, path: str, stream: bool) -> None:
    body = request("p", max_tokens=3)
    if stream:
        assert reasons(scripted.stream(path, **body)) == ["length"]
    else:
        (choice,) = scripted.ask(path, **body)["choices"]
        assert (text_of(choice), choice["finish_reason"]) == ("plain words,", "length")


@pytest.mark.parametrize("path", PATHS)
def test_b12_each_of_several_choices_has_its_index_and_its_end(scripted: Server, path: str) -> None:
    body = request("p", n=3, temperature=0.01, seed=1)
    events = scripted.stream(path, **body)
    for index in range(3):
        assert joined(events, index) == "plain words, no more"
        assert reasons(events, index) == ["stop"]
    whole = scripted.ask(path, **body)["choices"]
    assert [(choice["index"], text_of(choice)) for choice in whole] == [(index, "plain words, no more") for index in range(3)]
    assert "<|end|>" not in json.dumps([events, whole])


@pytest.mark.parametrize("path", PATHS)
def test_b13_four_choices_differ_and_come_again_with_their_seed(numbers: Server, path: str) -> None:
    body = request("z", n=4, temperature=1.0, seed=7, max_tokens=12, ignore_eos=True)
    first, again = (scripted_texts(numbers.ask(path, **body)) for _ in range(2))
    assert first == again
    assert len(first) == 4
    assert len(set(first)) > 1
    events = numbers.stream(path, **body)
    assert [joined(events, index) for index in range(4)] == first
    assert scripted_texts(numbers.ask(path, **body | {"seed": 8})) != first


def scripted_texts(answer: Any) -> list[str]:
    return [text_of(choice) for choice in sorted(answer["choices"], key=lambda choice: int(choice["index"]))]
