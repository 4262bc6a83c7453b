"""Reports J and K: calls of tools, and reasoning apart from content; and A6, a stop string in a thought."""

import json
from typing import Any

import pytest

from octavo.config.options import ServerOptions
from octavo.text.tokenizer import Tokenizer
from tests.reports.scripts import TALKS
from tests.reports.servers import CHAT, Server, says
from tests.server import talking
from tests.server.serving import in_process
from tests.server.talking import added_up, function, without_ids

PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}, "minItems": 1}},
}
PLACES: dict[str, Any] = {"type": "array", "items": PLACE, "minItems": 1, "maxItems": 9, "default": []}
WEATHER = function("get_weather", places=PLACES, when={"type": "string", "format": "date", "default": "2026-01-01"})
TOOLS = [WEATHER, function("now")]
MANY = {"places": [{"city": "Paris"}, {"city": "Rome", "days": [1, 2]}]}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
Call = tuple[str, Any]


def text(key: str) -> str:
    return "".join(str(piece) for piece in TALKS[key])


def answer(server: Server, key: str, **body: Any) -> dict[str, Any]:
    """The choice that is answered; streamed it must be the same."""
    body = {"messages": says(key), "tools": TOOLS, "temperature": 0, **body}
    (choice,) = server.ask(CHAT, **body)["choices"]
    streamed = added_up(server.stream(CHAT, **body))
    assert without_ids(streamed["message"]) == without_ids(choice["message"])
    assert streamed["finish_reason"] == choice["finish_reason"]
    return dict(choice)


def calls(choice: dict[str, Any]) -> list[Call]:
    return talking.arguments_of(choice["message"])


def test_j1_j2_arguments_are_whole_in_a_stream(talker: Server) -> None:
    choice = answer(talker, "w")
    assert calls(choice) == [("get_weather", MANY)]
    assert choice["finish_reason"] == "tool_calls"
    assert calls(answer(talker, "c")) == [("get_weather", {"places": [{"city": "Paris"}]})]


@pytest.mark.parametrize("per_step", [1, 8])
async def test_j2_several_marks_in_a_token_or_several_tokens_in_a_step(tmp_path_factory: pytest.TempPathFactory, per_step: int) -> None:
    tokenizer = talking.talking_tokenizer(tmp_path_factory.mktemp("marks"), by_id=False)
    options = ServerOptions(tool_call_parser="hermes")
    async with in_process(tokenizer, text("w"), options, per_step=per_step, max_model_len=1024) as served:
        body: dict[str, Any] = {"messages": says("w"), "tools": TOOLS}
        whole = (await served.post(CHAT, **body)).json()["choices"][0]
        streamed = added_up(await served.events(CHAT, **body))
    assert calls(whole) == calls(streamed) == [("get_weather", MANY)]


def test_j3_a_function_without_parameters_has_arguments(talker: Server) -> None:
    choice = answer(talker, "0")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "now", "arguments": "{}"}


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_j4_a_call_that_must_be_made_ends_with_tool_calls(talker: Server, choice: Any) -> None:
    found = answer(talker, "w", tool_choice=choice, parallel_tool_calls=False, max_tokens=200)
    ((name, arguments),) = calls(found)  # what they are is the grammar's and the model's affair
    assert name == "get_weather" or choice != NAMED
    assert isinstance(arguments, dict)
    assert (found["message"]["content"], found["finish_reason"]) == (None, "tool_calls")


def test_j5_an_answer_without_calls_never_ends_with_tool_calls(talker: Server) -> None:
    for body in ({"tool_choice": "required", "max_tokens": 1}, {"tool_choice": NAMED, "max_tokens": 3}, {"max_tokens": 4}):
        choice = answer(talker, "w", **body)
        assert (choice["message"]["tool_calls"], choice["finish_reason"]) == ([], "length")


def test_j6_j13_calls_of_one_answer_have_their_own_index_id_and_name(talker: Server) -> None:
    choice = answer(talker, "2")
    assert [name for name, _ in calls(choice)] == ["get_weather", "now"]
    assert choice["message"]["content"] == "Both."
    events = talker.stream(CHAT, messages=says("2"), tools=TOOLS)
    pieces = [piece for event in events for piece in event["choices"][0]["delta"].get("tool_calls", [])]
    assert {piece["index"] for piece in pieces} == {0, 1}
    assert len({piece["id"] for piece in pieces if "id" in piece}) == 2
    assert [piece["function"]["name"] for piece in pieces if "name" in piece["function"]] == ["get_weather", "now"]


def test_j7_one_call_is_one_call(talker: Server) -> None:
    choice = answer(talker, "2", parallel_tool_calls=False)
    assert [name for name, _ in calls(choice)] == ["get_weather"]
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("message", [{"content": None}, {}, {"content": ""}])
def test_j8_j9_a_turn_of_calls_alone_is_in_the_prompt_with_its_arguments_as_a_map(talker: Server, message: dict[str, Any]) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Pa\\"ris", "days": 2}'}}
    turn = {"role": "assistant", "tool_calls": [call], **message}
    history = [*says("w"), turn, {"role": "tool", "tool_call_id": "c1", "content": "warm"}, *says("p")]
    assert answer(talker, "", messages=history)["message"]["content"] == text("p")
    tokens = talker.ask("/tokenize", messages=history)["tokens"]
    assert '[assistant]get_weather(city="Pa\\"ris"days=2)[tool]warm' in talker.ask("/detokenize", tokens=tokens)["prompt"]


def test_j10_common_keywords_of_schemas_are_taken(talker: Server) -> None:
    assert calls(answer(talker, "w", tool_choice="required", tools=[{**WEATHER, "function": {**WEATHER["function"], "strict": True}}]))
    assert calls(answer(talker, "w", tools=[{**WEATHER, "function": {**WEATHER["function"], "strict": True}}]))


def test_j11_with_thinking_off_a_call_is_a_call(talker: Server) -> None:
    choice = answer(talker, "x", chat_template_kwargs={"enable_thinking": False})
    assert calls(choice) == [("get_weather", MANY)]
    assert choice["message"]["reasoning"] is None


def test_j12_calls_that_must_be_made_are_streamed(talker: Server) -> None:
    body: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 300, "temperature": 0}
    choice = added_up(talker.stream(CHAT, messages=says("w"), **body))
    first, *_ = choice["message"]["tool_calls"]
    assert isinstance(json.loads(first["function"]["arguments"]), dict)
    assert choice["message"]["content"] is None


def test_j14_what_only_looks_like_a_call_is_content(talker: Server) -> None:
    for key in ("j", "u"):
        choice = answer(talker, key)
        assert (choice["message"]["content"], choice["message"]["tool_calls"], choice["finish_reason"]) == (text(key), [], "stop")


# --- reasoning


def test_a6_a_stop_string_inside_a_thought_stops_nothing(talker: Server) -> None:
    choice = answer(talker, "s", stop="9.8")
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == ("9.11 or 9.8", "ok")
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)
    choice = answer(talker, "s", stop="k")
    assert (choice["message"]["content"], choice["stop_reason"]) == ("o", "k")


def test_k1_a_closing_tag_that_is_cut_over_two_chunks_is_found(talker: Server) -> None:
    choice = answer(talker, "k")
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == ("deep", "ok")


def test_k2_no_part_of_a_tag_shows_however_it_is_cut(talker: Server) -> None:
    choice = answer(talker, "b")
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == ("onetwo", "xy")


@pytest.mark.parametrize("per_step", range(1, 12))
async def test_k2_wherever_the_tags_are_cut(tmp_path_factory: pytest.TempPathFactory, per_step: int) -> None:
    tokenizer: Tokenizer = talking.talking_tokenizer(tmp_path_factory.mktemp("cuts"), by_id=False)
    async with in_process(tokenizer, text("b"), per_step=per_step, reasoning_parser="qwen3") as served:
        streamed = added_up(await served.events(CHAT, messages=says("b")))
    assert (streamed["message"]["reasoning"], streamed["message"]["content"]) == ("onetwo", "xy")


def test_k3_a_quoted_end_tag_is_read_alike_in_both_modes(talker: Server) -> None:
    # where tags are spelled and no tokens of the vocabulary, the first one ends the thought
    choice = answer(talker, "q")
    assert choice["message"]["reasoning"] == "say `"
    assert choice["message"]["content"].startswith("` to end")


@pytest.mark.parametrize(
    ("switch", "reasoning", "content"), [(None, None, text("p")), (True, "deep thought", "open answer"), (False, None, None)]
)
def test_k4_no_control_mark_shows_whatever_the_template_is_told(talker: Server, switch: bool | None, reasoning: Any, content: Any) -> None:
    choice = answer(talker, "p", chat_template_kwargs={} if switch is None else {"enable_thinking": switch})
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == (reasoning, content)
    assert len(calls(choice)) == (switch is False)


def test_k5_a_thought_ends_when_its_budget_is_spent(talker: Server) -> None:
    body: dict[str, Any] = {"tools": None, "chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 40}
    assert answer(talker, "p", **body)["message"]["reasoning"] == "deep thought"
    choice = answer(talker, "p", **body, thinking_token_budget=1)
    assert choice["message"]["reasoning"] == "deep"
    assert choice["message"]["content"]
    usage = talker.ask(CHAT, messages=says("p"), **body, thinking_token_budget=1)["usage"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]
