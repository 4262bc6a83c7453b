"""Forced calls: whatever a model that says noise makes of them, the format's own parser reads calls of the tools, with valid arguments."""

import codecs
import json
import random
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import pytest

from octavo import plugins
from octavo.config.config import GrammarConfig
from octavo.errors import RequestError
from octavo.grammar.backends import guidance
from octavo.grammar.closing import Finder
from octavo.grammar.grammar import grammar_of
from octavo.grammar.tool_choice import spec_for
from octavo.grammar.tool_syntax import SYNTAXES, as_json
from octavo.grammar.vocabulary import SpecialTexts, Vocabulary
from octavo.parsing.events import Arguments, Content, Piece, ToolCall
from octavo.parsing.machine import open_parser
from tests.grammar import vocabularies
from tests.grammar.documents import generate
from tests.grammar.random_model import PIECES

ANSWERS = 6  # to each format


@dataclass(frozen=True)
class Tool:
    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    strict: bool = True


PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 0, "maximum": 99},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "exact": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["days", "unit"],
    "additionalProperties": False,
}
TOOLS = [Tool("get_weather", PARAMETERS), Tool("now", {"type": "object", "properties": {}, "additionalProperties": False})]


def vocabulary_of(name: str) -> Vocabulary:
    markers = dict.fromkeys(("<|end|>", *plugins.load("parsing.tools", name).FORMAT.tokens))
    specials = {text: 256 + index for index, text in enumerate(markers)}
    tokens = [bytes([value]) for value in range(256)] + [text.encode() for text in markers]
    tokens += dict.fromkeys(piece.encode() for piece in PIECES)
    return Vocabulary(tokens, specials, [256], lambda text: list(text.encode()))


def read(name: str, vocabulary: Vocabulary, tokens: list[int]) -> tuple[list[tuple[str, str]], str]:
    """The calls of an answer, and its content."""
    parser = open_parser(tool_format=name, tools=TOOLS, markers=vocabulary.specials.get)  # type: ignore[arg-type]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    special = set(vocabulary.specials.values())
    pieces = [Piece(decoder.decode(vocabulary.tokens[token]), token, token in special) for token in tokens]
    calls: list[tuple[str, str]] = []
    content = ""
    for event in [*parser.feed(pieces), *parser.finish()]:
        match event:
            case ToolCall():
                calls.append((event.name, ""))
            case Arguments():
                calls[event.index] = (calls[event.index][0], calls[event.index][1] + event.text)
            case Content():
                content += event.text
    return calls, content


@pytest.mark.parametrize("name", SYNTAXES)
def test_what_is_forced_is_read(name: str) -> None:
    vocabulary = vocabulary_of(name)
    backend, finder, rng = (
        guidance.Backend(vocabulary),
        Finder(vocabulary.tokens, range(257, 256 + len(vocabulary.specials))),
        random.Random(name),
    )
    for choice in ("required", "get_weather"):
        grammar = grammar_of(spec_for(name, TOOLS, choice), GrammarConfig(), SpecialTexts(vocabulary.specials))
        guidance.check(grammar)
        is_json = SYNTAXES[name].arguments is as_json  # then a quote ends a string
        begun, read_any = backend.compile(grammar), 0
        for _ in range(ANSWERS):
            tokens = generate(vocabulary, begun.copy(), rng, rng.choice((0, 20, 40)), finder, is_json)
            if tokens is None:
                continue
            calls, content = read(name, vocabulary, tokens)
            text = b"".join(vocabulary.tokens[token] for token in tokens)
            assert calls, text
            assert not content.strip(), (content, text)
            for called, arguments in calls:
                tool = next(tool for tool in TOOLS if tool.name == called)
                jsonschema.validate(json.loads(arguments or "{}"), tool.parameters)
                assert choice in ("required", called)
            read_any += 1
        assert read_any


def test_without_a_format_calls_are_json() -> None:
    required = vocabularies.matcher(json=spec_for(None, TOOLS, "required").json)
    assert vocabularies.accepts(required.copy(), '[{"name": "now", "parameters": {}}]')
    assert not vocabularies.accepts(required.copy(), "[]")
    assert vocabularies.accepts(vocabularies.matcher(json=spec_for(None, TOOLS, "get_weather").json), '{"days": 3, "unit": "c"}')


def test_one_call_where_calls_may_not_be_parallel() -> None:
    one = spec_for("hermes", TOOLS, "required", parallel=False)
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert vocabularies.accepts(vocabularies.matcher(structural_tag=one.structural_tag), call)
    assert not vocabularies.accepts(vocabularies.matcher(structural_tag=one.structural_tag), f"{call}\n{call}")
    more = spec_for("hermes", TOOLS, "required")
    assert vocabularies.accepts(vocabularies.matcher(structural_tag=more.structural_tag), f"{call}\n{call}")


def test_what_cannot_be_forced_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="cannot be forced"):
        spec_for("no_such_format", TOOLS, "required")
    with pytest.raises(RequestError, match="no tool named 'later'"):
        spec_for("hermes", TOOLS, "later")
