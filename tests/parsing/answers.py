"""An answer as a test reads it: reasoning, content and calls, the same however its text is cut."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from octavo.parsing.events import Arguments, Content, Event, Piece, Reasoning, Tool, ToolCall, ToolEnd
from octavo.parsing.machine import open_parser

PLACE = {"type": "object", "properties": {"street": {"type": "string"}, "number": {"type": "integer"}}}
TOOLS = (
    Tool(
        "get_weather",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "share": {"type": "number"},
                "exact": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "place": PLACE,
                "places": {"type": "array", "items": PLACE},
            },
        },
    ),
    Tool("now", {"type": "object", "properties": {}}),
)


class Answer(NamedTuple):
    """calls: names with arguments, decoded; None for those of a call that was cut off."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, Any], ...]


def added_up(events: Iterable[Event]) -> Answer:
    """What a client has that added all events up."""
    reasoning, content = "", ""
    names: list[str] = []
    arguments: dict[int, str] = {}
    ended: set[int] = set()
    for event in events:
        match event:
            case Reasoning(text):
                reasoning += text
            case Content(text):
                content += text
            case ToolCall(index, name):
                assert index == len(names)
                names.append(name)
                arguments[index] = ""
            case Arguments(index, text):
                assert index == len(names) - 1
                assert index not in ended
                arguments[index] += text
            case ToolEnd(index):
                ended.add(index)
    calls = tuple((name, json.loads(arguments[i]) if i in ended else None) for i, name in enumerate(names))
    return Answer(reasoning, content, calls)


def pieces_of(text: str, tokens: Mapping[str, int], size: int) -> list[Piece]:
    """The text as tokens: special ones whole, the rest `size` characters each."""
    pieces: list[Piece] = []
    at, plain = 0, ""
    spellings = sorted(tokens, key=len, reverse=True)

    def flush() -> None:
        pieces.extend(Piece(plain[i : i + size]) for i in range(0, len(plain), size))

    while at < len(text):
        token = next((s for s in spellings if text.startswith(s, at)), None)
        if token is None:
            plain += text[at]
            at += 1
            continue
        flush()
        plain = ""
        pieces.append(Piece(token, tokens[token], is_special=True))
        at += len(token)
    flush()
    return pieces


def read(
    text: str,
    tool_format: str | None = None,
    reasoning_format: str | None = None,
    *,
    tools: Sequence[Tool] = TOOLS,
    special: Sequence[str] = (),
    prompt_end: str = "",
    cut_off: bool = False,
) -> Answer:
    """The answer in a text, read whole, by 7 and by single characters, with whole calls and with calls as they come: all equal.

    special: spellings that are one special token each.
    """
    tokens = {spelling: 100_000 + i for i, spelling in enumerate(special)}
    answers: list[Answer] = []
    markers: Callable[[str], int | None] = tokens.get
    for size in (len(text) + 1, 7, 1):
        for whole_calls in (True, False):
            parser = open_parser(
                tool_format=tool_format,
                reasoning_format=reasoning_format,
                tools=tools,
                markers=markers,
                prompt_end=prompt_end,
                whole_calls=whole_calls,
            )
            pieces = pieces_of(text, tokens, size)
            events = parser.feed(pieces) if size > len(text) else [event for piece in pieces for event in parser.feed([piece])]
            answer = added_up([*events, *parser.finish(cut_off)])
            answers.append(answer._replace(calls=tuple(call for call in answer.calls if call[1] is not None)))
    assert answers == [answers[0]] * len(answers)
    return answers[0]
