"""xgrammar: a pushdown automaton whose masks are made when a grammar is compiled. It passes over what it does not know, so that is refused
before. Structural tags and Lark are llguidance's, which knows special tokens and Lark's dialect.

Loading the library loads torch; that happens in the engine's process, and only where this back end was asked for.
"""

import importlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import ConfigError, RequestError
from octavo.grammar.backend import Words
from octavo.grammar.backends import guidance
from octavo.grammar.grammar import FIELD, Grammar
from octavo.grammar.json_schema import MAX_BLANKS
from octavo.grammar.vocabulary import Vocabulary
from octavo.grammar.xgrammar_regex import to_xgrammar
from octavo.grammar.xgrammar_schema import check as check_schema


def is_ours(grammar: Grammar) -> bool:
    """Whether this back end makes the masks of such a grammar."""
    return grammar.kind != "structural_tag" and (grammar.kind != "grammar" or grammar.ebnf is not None)


def check(grammar: Grammar) -> None:
    """Raise RequestError, naming keyword and place, for a grammar that compile() would refuse or not keep. Needs no vocabulary."""
    guidance.check(grammar)  # what is wrong whoever reads it, and what would cost too much
    if not is_ours(grammar):
        return
    if grammar.is_json:
        if grammar.options.whitespace is not None:
            raise RequestError(f"{FIELD}.whitespace_pattern: xgrammar has none", "leave it away, or start with guidance", FIELD)
        check_schema(grammar.schema, grammar.kind)
    elif grammar.kind == "regex":
        to_xgrammar(grammar.text, "regex")


class _Tokens:
    """Which tokens there are. sayable, others: masks of those that may stand in a text or end it, and of those that do not end it."""

    def __init__(self, vocabulary: Vocabulary, ends: Sequence[int]) -> None:
        self.encode = vocabulary.encode
        bits = np.zeros(32 * vocabulary.words, np.uint8)
        bits[: len(vocabulary.tokens)] = 1
        bits[list(vocabulary.specials.values())] = 0
        bits[list(ends)] = 0
        self.others = np.packbits(bits, bitorder="little").view(np.int32)
        bits[list(ends)] = 1
        self.sayable = np.packbits(bits, bitorder="little").view(np.int32)


class XGrammarMatcher:
    def __init__(self, matcher: Any, tokens: _Tokens) -> None:
        self._matcher = matcher
        self._tokens = tokens

    def fill(self, words: Words) -> None:
        if self._matcher.is_terminated():
            words[:] = 0
            return
        words[:] = -1  # what the library leaves where all may follow
        self._matcher.fill_next_token_bitmask(words.reshape(1, -1), 0)
        words &= self._tokens.sayable

    def accept(self, token: int) -> bool:
        return not self._matcher.is_terminated() and bool(self._matcher.accept_token(token))

    def roll_back(self, count: int) -> None:
        self._matcher.rollback(count)

    def forced(self) -> list[int]:
        return list(self._tokens.encode(self._matcher.find_jump_forward_string()))

    def copy(self) -> "XGrammarMatcher":
        return XGrammarMatcher(self._matcher.fork(), self._tokens)

    @property
    def may_end(self) -> bool:
        return bool(self._matcher.is_completed())

    @property
    def is_complete(self) -> bool:
        if not self.may_end or self._matcher.is_terminated():
            return self.may_end
        words = np.empty_like(self._tokens.others)
        self.fill(words)
        return not (words & self._tokens.others).any()

    @property
    def error(self) -> str | None:
        return None


class Backend:
    def __init__(self, vocabulary: Vocabulary) -> None:
        try:
            self._library: Any = importlib.import_module("xgrammar")
        except ImportError as error:
            raise ConfigError(
                f"the back end xgrammar cannot be loaded: {error}", "pip install 'octavo[xgrammar]', or use guidance"
            ) from None
        self._others = guidance.Backend(vocabulary)
        hidden = set(vocabulary.specials.values())
        tokens = [b"" if index in hidden else data for index, data in enumerate(vocabulary.tokens)]
        ends = vocabulary.eos_token_ids or [len(tokens) - 1]
        info = self._library.TokenizerInfo(tokens, self._library.VocabType.RAW, stop_token_ids=ends)
        self._compiler = self._library.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._tokens = _Tokens(vocabulary, ends)

    def compile(self, grammar: Grammar) -> Any:
        if not is_ours(grammar):
            return self._others.compile(grammar)
        check(grammar)
        try:
            compiled = self._compiled(grammar)
        except RuntimeError as error:  # all that the library raises
            raise RequestError(f"{FIELD}.{grammar.kind}: {_shortened(str(error))}", parameter=FIELD) from None
        return XGrammarMatcher(self._library.GrammarMatcher(compiled), self._tokens)

    def _compiled(self, grammar: Grammar) -> Any:
        if grammar.is_json:
            how: dict[str, Any] = {"any_whitespace": True, "max_whitespace_cnt": MAX_BLANKS}
            if grammar.options.is_compact:
                how = {"any_whitespace": False, "separators": (",", ":")}
            return self._compiler.compile_json_schema(json.dumps(grammar.schema), strict_mode=False, **how)
        if grammar.kind == "regex":
            return self._compiler.compile_regex(to_xgrammar(grammar.text, "regex"))
        if grammar.kind == "grammar":
            return self._compiler.compile_grammar(grammar.ebnf)
        return self._compiler.compile_lark(grammar.text)

    def fill_all(self, matchers: Sequence[Any], masks: npt.NDArray[np.int32]) -> None:
        for matcher, words in zip(matchers, masks):
            matcher.fill(words)


def _shortened(complaint: str) -> str:
    """The library's complaint without where in its sources it arose."""
    text = complaint.strip().splitlines()[0] if complaint.strip() else "refused"
    _, _, said = text.partition(": ")
    return (said or text)[:300]
