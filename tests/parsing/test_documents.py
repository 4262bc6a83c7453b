"""Answers of every format, made up and cut anywhere: what was meant comes out, and nothing else, however the stream was cut."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from octavo import plugins
from octavo.parsing.events import Arguments, Content, Event, Piece, Reasoning, Tool, ToolCall, ToolEnd, join
from octavo.parsing.machine import open_parser
from tests.parsing.writers import WRITERS, Answer, Markup, Segments, Words, Writer

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    Tool("get_time"),
    Tool(
        "write_file",
        {"type": "object", "properties": {"path": STRING, "content": STRING, "mode": INTEGER}},
    ),
    Tool(
        "search-all",
        {
            "type": "object",
            "properties": {
                "query": STRING,
                "limit": INTEGER,
                "ratio": {"type": "number"},
                "exact": {"type": "boolean"},
                "tags": {"type": "array", "items": STRING},
                "filters": {"type": "object"},
                "none": {"type": "null"},
            },
        },
    ),
]
WORDS = [
    "a",
    "Zürich",
    "東京",
    "👩‍💻",
    " ",
    "  ",
    "\n",
    "\t",
    "\\",
    '"',
    "'",
    "`",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "<",
    ">",
    "</",
    "&amp;",
    "\\n",
    "\\u00e9",
    "=",
    "/",
    "|",
    "｜",
]
COMMON_MARKERS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=f>",
    "</function>",
    "[TOOL_CALLS]",
    '{"name": "get_time", "arguments": {}}',
]

Markers = Callable[[str], int | None]


def markup_of(writer: Writer) -> list[str]:
    """The pieces that this format's markup is made of."""
    answer = Answer("r", "b", [("write_file", {"path": "p", "content": "c"}), ("get_time", {})], "a")
    found = [segment.text.strip() for segment in writer.write(answer) if isinstance(segment, Markup)]
    return sorted({text for text in (*found, *writer.tokens) if text})


def quoted_calls(writer: Writer) -> str:
    """Whole calls, as a value may quote them."""
    segments = writer.write(Answer(calls=[("get_time", {}), ("write_file", {"path": "p", "mode": 1})]))
    return "".join(segment.text for segment in segments)


def is_unambiguous(writer: Writer, text: str) -> bool:
    """Whether a raw value can be told from the markup after it. A format without escapes cannot write the others."""
    if not writer.ends_of_values:
        return True
    text = text.replace(quoted_calls(writer), "x") if writer.quotes_whole_calls else text
    close, *following = writer.ends_of_values
    if not following:
        return close not in text
    return not any(re.search(re.escape(close) + r"\s*" + re.escape(word), text + word) for word in following)


@st.composite
def texts(draw: st.DrawFn, markers: Sequence[str], min_size: int = 0) -> str:
    """Text with markers in it, whole and torn."""
    torn = st.builds(
        lambda marker, length: marker[: 1 + length % max(len(marker) - 1, 1)], st.sampled_from(markers or ["x"]), st.integers(0, 40)
    )
    fragment = st.sampled_from(WORDS) | (st.sampled_from(markers) if markers else st.nothing()) | torn | st.text(max_size=4)
    return "".join(draw(st.lists(fragment, min_size=min_size, max_size=8)))


@st.composite
def arguments(draw: st.DrawFn, writer: Writer, tool: Tool) -> dict[str, Any]:
    markers = [*markup_of(writer), *COMMON_MARKERS, quoted_calls(writer)]
    value_texts = texts(markers).filter(lambda text: is_unambiguous(writer, text))
    scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False) | value_texts
    keys = st.sampled_from(["a", "key", "B_2"])
    values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=5)
    by_type: dict[str, st.SearchStrategy[Any]] = {
        "string": value_texts,
        "integer": st.integers(-(10**18), 10**18),
        "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
        "boolean": st.booleans(),
        "array": st.lists(values, max_size=3),
        "object": st.dictionaries(keys, values, max_size=3),
        "null": st.none(),
    }
    properties = tool.parameters.get("properties", {})
    chosen = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    made = {key: draw(by_type[properties[key]["type"]]) for key in chosen}
    return {
        key: value for key, value in made.items() if isinstance(value, str) or is_unambiguous(writer, json.dumps(value, ensure_ascii=False))
    }


@st.composite
def answers(draw: st.DrawFn, writer: Writer, has_tokens: bool) -> Answer:
    markers = [*markup_of(writer), *COMMON_MARKERS] if has_tokens else []

    def prose() -> str:
        text = draw(texts(markers, 1)).strip()
        if not has_tokens and any(marker in text for marker in ("[THINK]", "<think>", "</think>")):
            return "x"
        return text if text[:1] not in ("{", "[") else "x" + text

    is_all_calls = draw(st.booleans()) if not writer.has_text_and_calls else False
    tools = draw(st.lists(st.sampled_from(TOOLS), max_size=3)) if writer.has_text_and_calls or is_all_calls else []
    return Answer(
        reasoning=prose() if writer.reasoning_format and draw(st.booleans()) else "",
        before=prose() if not is_all_calls and draw(st.booleans()) else "",
        calls=[(tool.name, draw(arguments(writer, tool))) for tool in tools],
        after=prose() if not is_all_calls and writer.has_text_after and tools and draw(st.booleans()) else "",
    )


def pieces_of(segments: Segments, tokens: Sequence[str], markers: Markers, has_tokens_in_arguments: bool) -> list[Piece]:
    """Markup's tokens are tokens; a model's own text is ordinary text, except that in arguments it may hold tokens as well."""
    pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))
    pieces: list[Piece] = []
    for segment in segments:
        if isinstance(segment, Words) and not (segment.is_argument and has_tokens_in_arguments):
            pieces.append(Piece(segment.text))
            continue
        at = 0
        for found in pattern.finditer(segment.text):
            pieces += [
                Piece(segment.text[at : found.start()]),
                Piece(found[0], markers(found[0]), is_special=markers(found[0]) is not None),
            ]
            at = found.end()
        pieces.append(Piece(segment.text[at:]))
    return [piece for piece in pieces if piece.text]


@st.composite
def cuts(draw: st.DrawFn, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces in groups, ordinary ones cut anywhere."""
    size = draw(st.sampled_from([1, 1, 2, 3, 5, 8]))
    small = [
        part
        for piece in pieces
        for part in (
            [piece] if piece.token_id is not None else [Piece(piece.text[at : at + size]) for at in range(0, len(piece.text), size)]
        )
    ]
    groups: list[list[Piece]] = []
    at = 0
    for length in draw(st.lists(st.integers(1, 6), max_size=len(small))):
        groups.append(small[at : at + length])
        at += length
    return [*groups, *([piece] for piece in small[at:])]


def parse(
    writer: Writer, groups: Sequence[Sequence[Piece]], markers: Markers, cut_off: bool = False, whole_calls: bool = True
) -> list[Event]:
    parser = open_parser(
        tool_format=writer.tool_format,
        reasoning_format=writer.reasoning_format,
        tools=TOOLS,
        markers=markers,
        whole_calls=whole_calls,
    )
    events: list[Event] = []
    for group in groups:
        events += parser.feed(group)
    return join([*events, *parser.finish(cut_off)])


def said(events: Sequence[Event]) -> tuple[str, str, list[tuple[str, Any]]]:
    """Reasoning, content, and the calls that have an end."""
    ended = [event.index for event in events if isinstance(event, ToolEnd)]
    names = {event.index: event.name for event in events if isinstance(event, ToolCall)}
    texts_ = {index: "".join(event.text for event in events if isinstance(event, Arguments) and event.index == index) for index in ended}
    return (
        "".join(event.text for event in events if isinstance(event, Reasoning)),
        "".join(event.text for event in events if isinstance(event, Content)),
        [(names[index], json.loads(texts_[index])) for index in ended],
    )


def quotes_calls(writer: Writer, answer: Answer) -> bool:
    first_words = getattr(plugins.load("parsing.tools", writer.tool_format).FORMAT, "first_words", ())
    return bool(writer.ends_of_values) and any(word in text for _, made in answer.calls for text in strings(made) for word in first_words)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def vocabulary(writer: Writer, has_tokens: bool) -> Markers:
    ids = {spelling: 1000 + index for index, spelling in enumerate(writer.tokens)} if has_tokens else {}
    return ids.get


def check_answer(writer: Writer, data: st.DataObject) -> None:
    has_tokens = data.draw(st.booleans(), label="has tokens")
    markers = vocabulary(writer, has_tokens)
    answer = data.draw(answers(writer, has_tokens), label="answer")
    pieces = pieces_of(writer.write(answer), writer.tokens, markers, data.draw(st.booleans(), label="tokens in arguments"))
    whole = parse(writer, [pieces], markers)
    assert said(whole) == (answer.reasoning, answer.before + answer.after, list(answer.calls))
    groups = data.draw(cuts(pieces), label="cuts")
    assert parse(writer, groups, markers) == whole
    if not quotes_calls(writer, answer):  # in pieces a call that is quoted in another's value cannot be taken back
        assert said(parse(writer, groups, markers, whole_calls=False)) == said(whole)


def check_cut_off(writer: Writer, data: st.DataObject) -> None:
    """Cut off anywhere: the whole calls before the cut stay, and what is shown is part of what was meant."""
    has_tokens = data.draw(st.booleans())
    markers = vocabulary(writer, has_tokens)
    answer = data.draw(answers(writer, has_tokens))
    pieces = pieces_of(writer.write(answer), writer.tokens, markers, data.draw(st.booleans()))
    small = [part for piece in pieces for part in ([piece] if piece.token_id is not None else map(Piece, piece.text))]
    kept = small[: data.draw(st.integers(0, len(small)))]
    whole = parse(writer, [kept], markers, cut_off=True)
    assert parse(writer, [[piece] for piece in kept], markers, cut_off=True) == whole
    reasoning, _, calls = said(whole)
    assert answer.reasoning.startswith(reasoning.rstrip()) or not has_tokens
    assert calls == list(answer.calls)[: len(calls)]


def check_soup(writer: Writer, data: st.DataObject) -> None:
    """Markup in any order: nothing depends on the cuts, and every call that has an end has arguments that are an object."""
    has_tokens = data.draw(st.booleans())
    markers = vocabulary(writer, has_tokens)
    fragments = [
        *markup_of(writer),
        *COMMON_MARKERS,
        *WORDS,
        '{"path": "p"}',
        "write_file",
        "get_time",
        "1",
        "<parameter=path>\n",
        '"path"',
        "\n",
    ]
    text = data.draw(st.lists(st.sampled_from(fragments), max_size=14))
    pieces = pieces_of([Markup("".join(text))], writer.tokens, markers, True)
    cut_off = data.draw(st.booleans())
    whole_calls = data.draw(st.booleans())
    groups = data.draw(cuts(pieces))
    whole = parse(writer, [pieces], markers, cut_off, whole_calls)
    assert parse(writer, groups, markers, cut_off, whole_calls) == whole
    assert all(isinstance(call[1], dict) for call in said(whole)[2])
    assert not whole_calls or len(said(whole)[2]) == sum(isinstance(event, ToolCall) for event in whole)


PHASES = (Phase.explicit, Phase.generate)
CHECKS = [check_answer, check_cut_off, check_soup]


def run(check: Callable[[Writer, st.DataObject], None], writer: Writer, num_examples: int) -> None:
    @settings(
        max_examples=num_examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck), phases=PHASES
    )
    @given(st.data())
    def checked(data: st.DataObject) -> None:
        check(writer, data)

    checked()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(WRITERS))
def test_sample(name: str, check: Callable[[Writer, st.DataObject], None]) -> None:
    run(check, WRITERS[name], 15)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(WRITERS))
def test_many(name: str, check: Callable[[Writer, st.DataObject], None]) -> None:
    run(check, WRITERS[name], 10_000)
