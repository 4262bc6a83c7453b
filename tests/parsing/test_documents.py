"""Answers of every format, made up and cut anywhere: what was meant comes out, and nothing else, however the stream was cut."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from octavo import plugins
from octavo.parsing.events import Arguments, Content, Event, Piece, Reasoning, Tool, ToolCall, ToolEnd, join
from octavo.parsing.machine import open_parser
from tests.parsing.more_writers import MORE
from tests.parsing.writers import WRITERS, Answer, Markup, Segments, Words, Writer

ALL = WRITERS | MORE
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
    if writer.forgives and re.search(writer.forgives, text.replace(quoted_calls(writer), "")):
        return False
    text = text.replace(quoted_calls(writer), "x") if writer.quotes_whole_calls else text
    close, *following = writer.ends_of_values
    first_words = plugins.load("parsing.tools", writer.tool_format).FORMAT.first_words
    if following and any(re.search(re.escape(word) + ".*" + re.escape(following[0]), text, re.DOTALL) for word in first_words):
        return False  # a call quoted in half: with the markup after it, it may be a whole one
    if not following:
        return close not in text
    return not any(re.search(re.escape(close) + r"\s*" + re.escape(word), text + word) for word in following)


def texts(markers: Sequence[str], min_size: int = 0) -> st.SearchStrategy[str]:
    """Text with markers in it, whole and torn."""
    torn = sorted({marker[:length] for marker in markers for length in range(1, min(len(marker), 40))})
    fragments = st.sampled_from(WORDS) | st.text(max_size=4)
    if markers:
        fragments = fragments | st.sampled_from(markers) | st.integers(0, len(torn) - 1).map(lambda index: torn[index])
    return st.lists(fragments, min_size=min_size, max_size=8).map("".join)


@cache
def arguments(name: str, tool_name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments that this format can write, for this tool."""
    writer = ALL[name]
    value_texts = texts([*markup_of(writer), *COMMON_MARKERS, quoted_calls(writer)]).filter(lambda text: is_unambiguous(writer, text))
    numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20)
    keys = st.sampled_from(["a", "key", "B_2"])
    values = st.recursive(
        st.none() | st.booleans() | numbers | value_texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=5,
    )
    by_type: dict[str, st.SearchStrategy[Any]] = {
        "string": value_texts,
        "integer": st.integers(-(10**18), 10**18),
        "number": numbers,
        "boolean": st.booleans(),
        "array": st.lists(values, max_size=3),
        "object": st.dictionaries(keys, values, max_size=3),
        "null": st.none(),
    }
    tool = next(tool for tool in TOOLS if tool.name == tool_name)
    made = {key: by_type[schema["type"]] for key, schema in tool.parameters.get("properties", {}).items()}

    def writable(chosen: dict[str, Any]) -> dict[str, Any]:
        return {
            key: value
            for key, value in chosen.items()
            if writer.can_write(value) and (isinstance(value, str) or is_unambiguous(writer, json.dumps(value, ensure_ascii=False)))
        }

    return st.fixed_dictionaries({}, optional=made).map(writable)


@cache
def answers(name: str, has_tokens: bool) -> st.SearchStrategy[Answer]:
    writer = ALL[name]
    markers = [*markup_of(writer), *COMMON_MARKERS] if has_tokens else []

    def sayable(text: str) -> str:
        text = text.strip()
        if not has_tokens and any(marker in text for marker in ("[THINK]", "[/THINK]", "<think>", "</think>")):
            return "x"
        if any(marker in text for marker in writer.letters):
            return "x"
        return text if text[:1] not in ("{", "[") else "x" + text

    prose = texts(markers, 1).map(sayable)
    calls = st.lists(st.one_of([arguments(name, tool.name).map(lambda made, tool=tool: (tool.name, made)) for tool in TOOLS]), max_size=3)
    nothing = st.just("")
    if not writer.has_text_and_calls:
        return st.builds(Answer, before=prose) | st.builds(Answer, calls=calls)
    made = st.builds(
        Answer,
        reasoning=nothing | prose if writer.reasoning_format else nothing,
        before=nothing | prose,
        calls=calls,
        after=nothing | prose if writer.has_text_after else nothing,
    )
    return made.map(lambda answer: answer if answer.calls else replace(answer, after=""))


def pieces_of(segments: Segments, tokens: Sequence[str], markers: Markers, has_tokens_in_arguments: bool) -> list[Piece]:
    """Markup's tokens are tokens; a model's own text is ordinary text, except that in arguments it may hold tokens as well."""
    pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)")
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


def cut(pieces: Sequence[Piece], random: Random) -> list[list[Piece]]:
    """The pieces in groups, ordinary ones cut anywhere."""
    size = random.choice([1, 1, 2, 3, 5, 8])
    small = [part for piece in pieces for part in ([piece] if piece.token_id is not None else _cut_text(piece.text, size))]
    groups: list[list[Piece]] = []
    most = random.choice([1, 2, 6, 20])
    while small:
        length = random.randint(1, most)
        groups.append(small[:length])
        small = small[length:]
    return groups


def _cut_text(text: str, size: int) -> list[Piece]:
    return [Piece(text[at : at + size]) for at in range(0, len(text), size)]


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


def check_answer(name: str, data: st.DataObject) -> None:
    writer = ALL[name]
    has_tokens = data.draw(st.booleans()) and bool(writer.tokens)
    has_tokens_in_arguments = data.draw(st.booleans())
    markers = vocabulary(writer, has_tokens)
    answer = data.draw(answers(name, has_tokens))
    pieces = pieces_of(writer.write(answer), writer.tokens, markers, has_tokens_in_arguments)
    whole = parse(writer, [pieces], markers)
    assert said(whole) == (answer.reasoning, answer.before + answer.after, list(answer.calls))
    random = Random(data.draw(st.integers(0, 2**32)))
    groups = cut(pieces, random)
    assert parse(writer, groups, markers) == whole
    if not quotes_calls(writer, answer):  # in pieces a call that is quoted in another's value cannot be taken back
        assert said(parse(writer, groups, markers, whole_calls=False)) == said(whole)
    check_cut_off(writer, answer, groups[: random.randint(0, len(groups))], markers)


def check_cut_off(writer: Writer, answer: Answer, groups: Sequence[Sequence[Piece]], markers: Markers) -> None:
    """Cut off anywhere: the whole calls before the cut stay, and nothing is shown that was not meant."""
    whole = parse(writer, [[piece for group in groups for piece in group]], markers, cut_off=True)
    assert parse(writer, groups, markers, cut_off=True) == whole
    reasoning, _, calls = said(whole)
    if writer.tokens and markers(writer.tokens[0]) is not None:
        assert answer.reasoning.startswith(reasoning.rstrip())
    assert calls == list(answer.calls)[: len(calls)]


def check_soup(name: str, data: st.DataObject) -> None:
    """Markup in any order: nothing depends on the cuts, and every call that has an end has arguments that are an object."""
    writer = ALL[name]
    has_tokens = data.draw(st.booleans()) and bool(writer.tokens)
    cut_off, whole_calls = data.draw(st.booleans()), data.draw(st.booleans())
    markers = vocabulary(writer, has_tokens)
    pieces = pieces_of([Markup("".join(data.draw(soup(name))))], writer.tokens, markers, True)
    groups = cut(pieces, Random(data.draw(st.integers(0, 2**32))))
    whole = parse(writer, [pieces], markers, cut_off, whole_calls)
    assert parse(writer, groups, markers, cut_off, whole_calls) == whole
    assert all(isinstance(call[1], dict) for call in said(whole)[2])
    assert not whole_calls or len(said(whole)[2]) == sum(isinstance(event, ToolCall) for event in whole)


@cache
def soup(name: str) -> st.SearchStrategy[list[str]]:
    fragments = [
        *markup_of(ALL[name]),
        *COMMON_MARKERS,
        *WORDS,
        '{"path": "p"}',
        "write_file",
        "get_time",
        "1",
        "<parameter=path>\n",
        '"path"',
    ]
    return st.lists(st.sampled_from(fragments), max_size=14)


PHASES = (Phase.explicit, Phase.generate)
CHECKS = [check_answer, check_soup]


def run(check: Callable[[str, st.DataObject], None], name: str, num_examples: int) -> None:
    @settings(
        max_examples=num_examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    @given(st.data())
    def checked(data: st.DataObject) -> None:
        check(name, data)

    checked()


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(ALL))
def test_sample(name: str, check: Callable[[str, st.DataObject], None]) -> None:
    run(check, name, 20)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(ALL))
def test_many(name: str, check: Callable[[str, st.DataObject], None]) -> None:
    run(check, name, 10_000)
