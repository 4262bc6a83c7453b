"""Pieces: the bytes that one token stands for, so that text can grow token by token.

Two families of decoders give each token bytes of its own, whatever stands beside it: byte-level BPE, and SentencePiece (▁ is a space,
<0x0A> a byte). Text is then the UTF-8 of all bytes; a torn or impossible sequence is U+FFFD once for each maximal part, as Unicode
recommends. Other decoders (WordPiece, Metaspace of a word) look at neighbours; for them there is no table.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Backend

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_characters() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable Latin-1 as itself, the others from U+0100 upward (Radford et al., encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_characters()
_CHARACTERS = {byte: character for character, byte in _BYTES.items()}


def spell_bytes(data: bytes) -> str:
    """A token's bytes as byte-level BPE spells them."""
    return "".join(map(_CHARACTERS.__getitem__, data))


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a decoder reads tokens. `strips_first_space`: the space before the first word of a text is not part of it."""

    byte_level: bool
    byte_fallback: bool = False
    space: str | None = None
    strips_first_space: bool = False

    def bytes_of(self, token: str) -> bytes:
        """The bytes of one token's text."""
        if self.byte_level:
            try:
                return bytes(_BYTES[character] for character in token)
            except KeyError:  # an added token that is plain text
                return token.encode("utf-8")
        if self.byte_fallback and len(token) == 6 and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return (token.replace(self.space, " ") if self.space else token).encode("utf-8")


def spelling_of(backend: Backend) -> Spelling | None:
    """How this tokenizer's decoder reads tokens, or None if a token alone does not say what its text is."""
    if backend.decoder is None:
        return None
    state: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    parts = state["decoders"] if state["type"] == "Sequence" else [state]
    kinds = [part["type"] for part in parts]
    if kinds == ["ByteLevel"]:
        return Spelling(byte_level=True)
    spelling: dict[str, Any] = {"byte_level": False}
    for part in parts:
        match part:
            case {"type": "Replace", "pattern": {"String": str(space)}, "content": " "} if "space" not in spelling:
                spelling["space"] = space
            case {"type": "ByteFallback"}:
                spelling["byte_fallback"] = True
            case {"type": "Fuse"}:
                spelling["fused"] = True
            case {"type": "Strip", "content": " ", "start": 1, "stop": 0} if spelling.get("fused"):
                spelling["strips_first_space"] = True
            case _:
                return None
    return Spelling(**spelling) if spelling.pop("fused", False) else None
