"""Detokenizer: tokens in one by one, text out as soon as it is certain. Never a torn character; at the end nothing is lost.

The pieces joined, flush included, are Tokenizer.decode of all tokens. A step costs the same however long the text is.
"""

import codecs
from collections.abc import Sequence

from octavo.text.tokenizer import Tokenizer

TORN = "\ufffd"
_CONTEXT_TOKENS = 8  # of the prompt: enough to complete a character, and to know that the text does not begin here


class Detokenizer:
    """The text of one generated sequence.

    prompt_token_ids: what stands before it. Their text is not given again, but a character that the prompt tore is completed, and a first
    word keeps its space. skip_special_tokens, spaces_between_special_tokens: as in Tokenizer.decode.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        self._pieces: list[str] = []
        form = _Bytes if tokenizer.spelling is not None else _Window
        self._form: _Bytes | _Window = form(tokenizer, skip_special_tokens, spaces_between_special_tokens)
        for token_id in prompt_token_ids[-_CONTEXT_TOKENS:]:
            self._form.add(token_id)

    def add(self, token_id: int) -> str:
        """The text that this token makes certain; "" if that is none."""
        piece = self._form.add(token_id)
        if piece:
            self._pieces.append(piece)
        return piece

    def flush(self) -> str:
        """What was still held back, at the end of the sequence; a torn character becomes U+FFFD."""
        piece = self._form.flush()
        if piece:
            self._pieces.append(piece)
        return piece

    @property
    def text(self) -> str:
        """All text given so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


class _Bytes:
    """Tokens that have bytes of their own: a UTF-8 decoder holds back what is torn."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool, spaces_between_special_tokens: bool) -> None:
        assert tokenizer.spelling is not None
        self._bytes_of = tokenizer.token_bytes
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = tokenizer.spelling.strips_first_space

    def add(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        return self._without_first_space(self._decoder.decode(self._bytes_of(token_id)))

    def flush(self) -> str:
        return self._without_first_space(self._decoder.decode(b"", final=True))

    def _without_first_space(self, piece: str) -> str:
        if self._at_start and piece:
            self._at_start = False
            return piece.removeprefix(" ")
        return piece


class _Window:
    """Tokens whose text depends on their neighbours: what the last tokens say with the new one, less what they said without it."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool, spaces_between_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._joins_special = not (skip_special_tokens or spaces_between_special_tokens)
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._context: list[int] = []  # tokens whose text was given, the last of them
        self._open: list[int] = []  # tokens whose text is not certain yet

    def add(self, token_id: int) -> str:
        if token_id in self._skipped or self._tokenizer.id_to_token(token_id) is None:
            return ""
        if self._joins_special and not self._open and self._context and {token_id, self._context[-1]} <= self._tokenizer.special_ids:
            self._context = [token_id]
            return self._tokenizer.id_to_token(token_id) or ""
        self._open.append(token_id)
        piece = self._piece()
        if piece.endswith(TORN) and len(self._open) < 4:
            return ""
        return self._close(piece)

    def flush(self) -> str:
        return self._close(self._piece()) if self._open else ""

    def _piece(self) -> str:
        before = self._tokenizer.decode(self._context, skip_special_tokens=self._skip) if self._context else ""
        return self._tokenizer.decode([*self._context, *self._open], skip_special_tokens=self._skip)[len(before) :]

    def _close(self, piece: str) -> str:
        self._context, self._open = self._open, []
        return piece
