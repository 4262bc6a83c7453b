"""Closing: the shortest end of a text that a grammar allows, or one nearly as short, found by trying tokens."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from octavo.grammar.backend import Matcher

WIDTH = 16  # beginnings that are followed at a time
BRANCHES = 8  # tokens tried after each
MOST_TRIED = 2_000  # in one search: it runs between two steps
# tried in this order: what ends a part of a JSON document, then its shortest values, then what patterns and formats ask for
_CLOSERS = ('"', "}", "]", '"}', '"]', "}}", "]}")
_PROBES = (
    *('""', "{}", "[]", "0", "1", "null", "true", "false", "{", "[", ":", ",", "-", ".", "a", "A", "e", "x", "T", "Z", "@", "_", "/"),
    *(chr(code) for code in range(0x21, 0x7F)),
)  # blanks are tried after these


class Finder:
    """Finds ends for one vocabulary. specials: its special tokens, which a grammar allows only where it means them."""

    def __init__(self, tokens: Sequence[bytes], specials: Iterable[int] = ()) -> None:
        self._specials = sorted(specials)
        ids = {data: index for index, data in reversed(list(enumerate(tokens))) if 0 < len(data) <= 8}
        self._closers = [ids[text.encode()] for text in _CLOSERS if text.encode() in ids]
        probes = [ids[text.encode()] for text in dict.fromkeys(_PROBES) if text.encode() in ids]
        self._probes = list(dict.fromkeys((*self._closers, *probes)))
        self._blanks = [ids[blank] for blank in (b"\n", b" ") if blank in ids]
        self._letter = ids.get(b"k")
        self._size = (len(tokens) + 31) // 32

    def find(self, matcher: Any, most: int, is_json: bool) -> list[int] | None:
        """Tokens after which the text may end, at most `most`; None if none were found. The matcher stays where it is."""
        level: list[tuple[list[int], Matcher]] = [([], matcher)]
        tried = 0
        while level and tried < MOST_TRIED:
            for path, state in level:
                if state.may_end:
                    return path
            level, count = self._next(level, most, is_json)
            tried += count
        return None

    def _next(self, level: list[tuple[list[int], Matcher]], most: int, is_json: bool) -> tuple[list[tuple[list[int], Matcher]], int]:
        """What one token, or a run of forced ones, makes of each beginning; of those that allow the same afterwards, the first.

        And how many were tried.
        """
        found: dict[bytes, tuple[list[int], Matcher]] = {}
        tried = 0
        for path, state in level:
            for tokens in self._steps(state, is_json):
                if len(path) + len(tokens) > most:
                    continue
                after, tried = state.copy(), tried + 1
                if not all(after.accept(token) for token in tokens):
                    continue
                if after.may_end:
                    return [(path + tokens, after)], tried
                words = np.zeros(self._size, np.int32)
                after.fill(words)
                found.setdefault(words.tobytes(), (path + tokens, after))
        return sorted(found.values(), key=lambda entry: len(entry[0]))[:WIDTH], tried

    def _steps(self, state: Matcher, is_json: bool) -> list[list[int]]:
        forced = state.forced()
        if forced:
            return [forced]
        words = np.zeros(self._size, np.int32)
        state.fill(words)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        if meant := [[token] for token in self._specials if bits[token]]:
            return meant[:BRANCHES]
        if is_json and (closers := [token for token in self._closers if bits[token]]):
            # where a letter may stand a quote ends a string, and a brace would be part of it
            return [[token] for token in closers[: 1 if self._letter is not None and bits[self._letter] else 3]]
        probes = [token for token in self._probes if bits[token]][:BRANCHES] + [token for token in self._blanks if bits[token]]
        if probes:
            return [[token] for token in probes]
        return [[token] for token in np.flatnonzero(bits)[:BRANCHES].tolist()]
