"""A vocabulary: the bytes of each token, which tokens are special, which end a text. What a back end makes its tables from."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_MARKER = re.compile(r"<.*>|\[[A-Z_/]+\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """tokens: bytes by id. specials: texts of the special tokens, with their ids; they can stand in no text. encode: text to ids, in which
    nothing is special."""

    tokens: list[bytes]
    specials: dict[str, int]
    eos_token_ids: list[int]
    encode: Callable[[str], list[int]]

    @property
    def words(self) -> int:
        """32-bit words of a mask."""
        return (len(self.tokens) + 31) // 32


def special_texts(added: Mapping[int, tuple[str, bool]]) -> dict[str, int]:
    """Of the tokens that were added to a vocabulary (id -> text, whether it is special) those that cannot be text.

    A marker such as <tool_call> counts, though not every tokenizer calls it special: who must write it means the token.
    """
    return {text: index for index, (text, is_special) in added.items() if text and (is_special or _MARKER.fullmatch(text))}


class SpecialTexts:
    """Splits a text into the special tokens that it spells and what is between them; the longest token first."""

    def __init__(self, specials: Mapping[str, int]) -> None:
        self._ids = specials
        spelled = "|".join(re.escape(text) for text in sorted(specials, key=len, reverse=True))
        self._pattern = re.compile(f"({spelled})") if spelled else None

    def __call__(self, text: str) -> list[str | int]:
        parts = self._pattern.split(text) if self._pattern is not None else [text]
        return [self._ids[part] if index % 2 else part for index, part in enumerate(parts) if part]
