"""Numbers end: no grammar of JSON bounds the digits of a number, and a model that repeats itself would never stop writing them."""

from collections.abc import Sequence

import numpy as np

from octavo.grammar.backend import Words

MOST = 64  # characters of one number
_NUMBER = frozenset(b"0123456789.eE+-")
_QUOTE, _BACKSLASH = b'"\\'


class NumberRun:
    """How many characters the number has at whose end the text stands. has_strings: quotes delimit strings, whose digits are free."""

    __slots__ = ("_has_strings", "_is_escaped", "_is_in_string", "length")

    def __init__(self, has_strings: bool) -> None:
        self._has_strings = has_strings
        self._is_in_string = self._is_escaped = False
        self.length = 0

    @property
    def is_too_long(self) -> bool:
        return self.length >= MOST

    def take(self, data: bytes) -> None:
        for byte in data:
            if self._is_in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif byte == _BACKSLASH:
                    self._is_escaped = True
                elif byte == _QUOTE:
                    self._is_in_string = False
            elif byte == _QUOTE and self._has_strings:
                self._is_in_string, self.length = True, 0
            else:
                self.length = self.length + 1 if byte in _NUMBER else 0


def number_tokens(tokens: Sequence[bytes]) -> Words:
    """The mask of tokens that do not go on with a number."""
    bits = np.zeros((len(tokens) + 31) // 32 * 32, np.uint8)
    bits[: len(tokens)] = [not token or token[0] not in _NUMBER for token in tokens]
    return np.packbits(bits, bitorder="little").view(np.int32)
