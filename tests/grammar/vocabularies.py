"""Vocabularies and matchers for tests without an engine."""

from functools import cache
from typing import Any

from octavo.config.config import GrammarConfig
from octavo.grammar.backends import guidance
from octavo.grammar.grammar import grammar_of
from octavo.grammar.vocabulary import SpecialTexts, Vocabulary
from octavo.protocol.sampling_params import StructuredOutputsParams
from tests.grammar.random_model import PIECES, SPECIALS


@cache
def small() -> Vocabulary:
    """Every byte, some special tokens, and pieces of several bytes."""
    tokens = [bytes([value]) for value in range(256)] + [text.encode() for text in SPECIALS]
    specials = {text: 256 + index for index, text in enumerate(SPECIALS)}
    tokens += dict.fromkeys(piece.encode() for piece in PIECES)
    return Vocabulary(tokens, specials, [256], lambda text: list(text.encode()))


@cache
def backend() -> guidance.Backend:
    return guidance.Backend(small())


def matcher(config: GrammarConfig | None = None, **params: Any) -> guidance.GuidanceMatcher:
    """A matcher for structured outputs, checked as the front end does."""
    grammar = grammar_of(StructuredOutputsParams(**params), config or GrammarConfig(), SpecialTexts(small().specials))
    guidance.check(grammar)
    return backend().compile(grammar)


def accepts(at: guidance.GuidanceMatcher, text: str | list[str | int]) -> bool:
    """Whether a whole text (ids stand for special tokens) is one that the grammar allows. The matcher is used up."""
    parts = [text] if isinstance(text, str) else text
    ids = [token for part in parts for token in (part.encode() if isinstance(part, str) else [part])]
    return all(at.accept(token) for token in ids) and at.may_end
