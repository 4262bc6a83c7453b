"""Calls that a model makes of its own accord: text is free, and a call that has begun goes on as the format has it."""

from typing import Any

import llguidance
import pytest

from octavo.grammar.called_tools import LEVELS, spec_when_called
from octavo.grammar.json_schema import JsonOptions
from octavo.grammar.structural_tag import TagGrammar
from octavo.grammar.tool_syntax import SYNTAXES
from octavo.parsing.events import Tool
from octavo.protocol.sampling_params import StructuredOutputsParams
from tests.server.talking import call_text

INTEGER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TOOLS = (Tool("f", INTEGER, strict=True), Tool("g", INTEGER))
BARE = {"llama3_json", "llama4_json", "llama4_pythonic", "pythonic", "xlam"}  # a call counts at the beginning of an answer only


class Bytes:
    """A vocabulary of the 256 bytes and an end."""

    eos_token_id, bos_token_id = 256, None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<eos>")
    special_token_ids = (256,)

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


VOCABULARY: Any = Bytes()
TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(VOCABULARY))


def takes(spec: StructuredOutputsParams | None, text: str) -> bool:
    """Whether the grammar lets the text be written."""
    assert spec is not None
    assert spec.structural_tag is not None
    matcher = llguidance.LLMatcher(TOKENIZER, TagGrammar(spec.structural_tag, JsonOptions()).text)
    assert not matcher.is_error(), matcher.get_error()
    data = list(text.encode())
    return bool(matcher.try_consume_tokens(data) == len(data))


@pytest.mark.parametrize("form", sorted(SYNTAXES.keys() - {"openai"}))
def test_text_is_free_and_a_call_goes_on_as_one(form: str) -> None:
    spec = spec_when_called(form, TOOLS)
    syntax = SYNTAXES[form]
    begun = syntax.opening or syntax.begin.partition("{name}")[0]
    assert takes(spec, "Plain text with <tags>.")
    assert not takes(spec, begun + "zzz")
    assert takes(spec, "text " + begun + "zzz") == (form in BARE)


def test_what_is_forced_follows_the_level_and_strictness() -> None:
    loose, strict = (call_text(name, '{"b": 1}') for name in "gf")
    assert takes(spec_when_called("hermes", TOOLS), "Now: " + call_text("f", '{"a": 1}') + "\n" + loose)
    assert not takes(spec_when_called("hermes", TOOLS), strict)
    assert spec_when_called("hermes", TOOLS[1:]) is None
    assert takes(spec_when_called("hermes", TOOLS[1:], "function"), loose)
    assert not takes(spec_when_called("hermes", TOOLS[1:], "function"), call_text("h", "{}"))
    assert not takes(spec_when_called("hermes", TOOLS[1:], "parameter"), loose)
    assert LEVELS == ("auto", "function", "parameter")


def test_an_answer_has_the_form_that_is_asked_for_or_is_calls() -> None:
    asked = StructuredOutputsParams(json={"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
    spec = spec_when_called("hermes", TOOLS, otherwise=asked)
    assert takes(spec, '{"x": 3}')
    assert takes(spec, call_text("f", '{"a": 1}'))
    assert not takes(spec, "Plain text.")
    for form in ("pythonic", "openai"):
        assert spec_when_called(form, TOOLS, otherwise=asked) == asked
