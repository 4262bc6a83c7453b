"""The alphabet that the machine reads: characters, and one character for each special token, so that a marker is never its spelling.

A token's character is a lone surrogate, which no text decoded from UTF-8 can hold.
"""

import re
from collections.abc import Callable, Sequence

from octavo.parsing.events import Piece

_FIRST, _LAST = 0xD800, 0xDFFF
_SURROGATE = re.compile("[\ud800-\udfff]")


class Alphabet:
    """Spells for one format and one vocabulary.

    spellings: those that may be one token; markers: a spelling's token id, if it has one. keep_special: show the special tokens that are
    none of them in content too.
    """

    def __init__(self, spellings: Sequence[str], markers: Callable[[str], int | None], keep_special: bool = False) -> None:
        self._keep_special = keep_special
        self._spelling: dict[str, str] = {}  # character -> spelling
        self._hidden: set[str] = set()
        self._by_id: dict[int, str] = {}
        self._by_spelling: dict[str, str] = {}
        self._written: dict[str, str] = {}
        for spelling in sorted(set(spellings), key=len, reverse=True):
            token_id = markers(spelling)
            if token_id is not None:
                self._by_id[token_id] = self._by_spelling[spelling] = self._new(spelling)

    def _new(self, spelling: str) -> str:
        character = chr(min(_FIRST + len(self._spelling), _LAST))
        self._spelling[character] = spelling
        return character

    def letters(self, piece: Piece) -> str:
        """A piece as the machine reads it."""
        text = _SURROGATE.sub("\ufffd", piece.text)
        character = self._by_id.get(piece.token_id) if piece.token_id is not None else None
        if character is None:
            if not (piece.is_special and text):
                return text
            character = self._by_spelling.get(text)
            if character is None:
                character = self._by_spelling[text] = self._new(text)
                self._hidden.add(character)
            return character
        spelling = self._spelling[character]
        torn = text[: -len(spelling)] if text.endswith(spelling) else ""  # what the token before it left torn
        return torn + character

    def marker(self, spelling: str) -> str:
        """A format's own text as the machine reads it: its tokens by their characters."""
        written = self._written.get(spelling)
        if written is None:
            written = spelling
            for token, character in self._by_spelling.items():
                if character not in self._hidden:
                    written = written.replace(token, character)
            self._written[spelling] = written
        return written

    def argument(self, text: str) -> str:
        """Text of an argument: every token by its spelling."""
        return _SURROGATE.sub(lambda found: self._spelling.get(found[0], ""), text)

    def shown(self, text: str) -> str:
        """Text for the reader: without the special tokens that mean nothing to the format."""
        if self._keep_special:
            return self.argument(text)
        return _SURROGATE.sub(lambda found: "" if found[0] in self._hidden else self._spelling.get(found[0], ""), text)
