"""llguidance: an Earley parser over derivatives of regular expressions. It refuses what it does not know, and every step is bounded."""

import json
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer

from octavo.errors import RequestError
from octavo.grammar.backend import Words
from octavo.grammar.grammar import FIELD, Grammar, as_guidance
from octavo.grammar.json_schema import UNSUPPORTED, find_keyword
from octavo.grammar.vocabulary import Vocabulary

# Texts of which a mask is made ahead: where all of them may follow, only the tokens beside them are tried one by one. The library's own are
# of JSON's strings and blanks; these are of what other expressions ask for.
SLICES = ("[a-z]+", "[a-zA-Z]+", r"\w+", r'[^"\\\x00-\x1F\x7F]{1,20}')
SERIAL_ROWS = 8  # fewer masks than this are computed one after the other
_UNIMPLEMENTED = re.compile(r"Unimplemented keys: (\[.*?\])")
# what the library says of a schema, and the keyword that it is about
_ABOUT = (
    (re.compile(r"Expected \w+ \w+ for '(\w+)'|Value for '(\w+)'"), ""),
    (re.compile(r"patternProperty"), "patternProperties"),
    (re.compile(r"metaschema|meta-schema"), "$schema"),
    (re.compile(r"oneOf constraints"), "oneOf"),
    (re.compile(r"Unknown format"), "format"),
    (re.compile(r"regex parse error|invalid regex|look-around"), "pattern"),
    (re.compile(r"not present in a registry|\$ref|Pointer|pointer"), "$ref"),
    (re.compile(r"Invalid type"), "type"),
)


def limits() -> LLParserLimits:
    """Of work, so that the same grammar is refused on every machine: compiling ends within about a second, a mask within milliseconds."""
    return LLParserLimits(
        initial_lexer_fuel=5_000_000, step_lexer_fuel=500_000, step_max_items=100_000, max_grammar_size=500_000, verbose_errors=False
    )


def check(grammar: Grammar) -> None:
    """Raise RequestError, naming keyword and place, for a grammar that compile() would refuse. Needs no vocabulary."""
    complaint = LLMatcher.validate_grammar(as_guidance(grammar), limits=limits())
    if complaint and not complaint.startswith("WARNING"):
        raise refusal(grammar, complaint)


def refusal(grammar: Grammar, complaint: str) -> RequestError:
    """The library's complaint as ours."""
    fact, where = _shortened(complaint), f"{FIELD}.{grammar.kind}"
    if not grammar.is_json:
        return RequestError(f"{where}: {fact}", parameter=FIELD)
    if (found := _UNIMPLEMENTED.search(complaint)) is not None:
        names = json.loads(found[1])
        path, keyword = find_keyword(grammar.schema, frozenset(names)) or ("#", names[0])
        fact = f"the keyword {keyword!r} at {path} is not supported"
        return RequestError(f"{where}: {fact}", f"leave it away; not supported: {', '.join(sorted(UNSUPPORTED))}", FIELD)
    for pattern, keyword in _ABOUT:
        match = pattern.search(complaint)
        name = keyword or (next(filter(None, match.groups()), "") if match is not None else "")
        if match is not None and (place := find_keyword(grammar.schema, frozenset((name,)))) is not None:
            return RequestError(f"{where}: {fact} (keyword {name!r}, the first of which is at {place[0]})", parameter=FIELD)
    return RequestError(f"{where}: {fact}", parameter=FIELD)


def _shortened(complaint: str) -> str:
    """One line. A pattern's fault is told in several, the last of which says what it is."""
    lines = [line.strip() for line in complaint.strip().splitlines() if line.strip()]
    fault = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), None)
    text = f"{lines[0].rstrip(':')}: {fault}" if fault is not None else lines[0] if lines else "refused"
    return text if len(text) <= 300 else f"{text[:300]}..."


class _Tokens:
    """A vocabulary as the library takes it."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = vocabulary.tokens
        self.eos_token_id = vocabulary.eos_token_ids[0] if vocabulary.eos_token_ids else len(vocabulary.tokens) - 1
        self.special_token_ids = sorted({*vocabulary.specials.values(), *vocabulary.eos_token_ids})
        self._encode = vocabulary.encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))


class GuidanceMatcher:
    def __init__(self, matcher: LLMatcher) -> None:
        self.matcher = matcher

    def fill(self, words: Words) -> None:
        self.matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if self.matcher.is_error():
            words[:] = 0

    def accept(self, token: int) -> bool:
        return self.matcher.try_consume_tokens([token]) == 1

    def roll_back(self, count: int) -> None:
        self.matcher.rollback(count)

    def forced(self) -> list[int]:
        tokens: list[int] = self.matcher.compute_ff_tokens()
        return tokens

    def copy(self) -> "GuidanceMatcher":
        return GuidanceMatcher(self.matcher.deep_copy())

    @property
    def may_end(self) -> bool:
        return bool(self.matcher.is_accepting())

    @property
    def is_complete(self) -> bool:
        return bool(self.matcher.is_stopped()) and not self.matcher.is_error()

    @property
    def error(self) -> str | None:
        return _shortened(self.matcher.get_error()) if self.matcher.is_error() else None


class Backend:
    def __init__(self, vocabulary: Vocabulary) -> None:
        ends = vocabulary.eos_token_ids or None
        tokens: Any = _Tokens(vocabulary)
        self._tokenizer = LLTokenizer(tokens, eos_token=ends, slices=[*LLTokenizer.general_slices(), *SLICES])
        threads = min(8, (os.cpu_count() or 1) // 2)
        self._executor = LLExecutor(threads) if threads > 1 else None

    def compile(self, grammar: Grammar) -> GuidanceMatcher:
        matcher = LLMatcher(self._tokenizer, as_guidance(grammar), log_level=0, limits=limits())
        if matcher.is_error():
            raise refusal(grammar, matcher.get_error())
        return GuidanceMatcher(matcher)

    def fill_all(self, matchers: Sequence[Any], masks: npt.NDArray[np.int32]) -> None:
        if self._executor is None or len(matchers) < SERIAL_ROWS:
            for matcher, words in zip(matchers, masks):
                matcher.fill(words)
            return
        pairs = [(each.matcher, index) for index, each in enumerate(matchers)]
        self._executor.unsafe_compute_mask_ptr(pairs, masks.ctypes.data, masks.shape[1] * 4, len(masks))
        for index, each in enumerate(matchers):
            if each.error is not None:
                masks[index] = 0
