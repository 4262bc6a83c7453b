"""Words: random texts that a tokenizer turns into exactly so many tokens, and the same so many on the server."""

import json
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from octavo.errors import ConfigError
from octavo.text.tokenizer import Tokenizer

ENOUGH = 64  # words that begin with a space; below it any token that stays whole will do
MOST_ROUNDS = 16  # of mending a text whose tokens grow together


class Words:
    """Tokens of one tokenizer that stay what they are beside each other, and texts made of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.num_added = len(tokenizer.encode(""))  # what the tokenizer puts around every text

    @cached_property
    def _ids(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return _steady_ids(self.tokenizer)

    def draw(self, random: np.random.Generator, count: int) -> list[int]:
        """Token ids for `count` tokens of text."""
        return [int(i) for i in self._ids[random.integers(0, len(self._ids), max(count, 0))]]

    def text(self, random: np.random.Generator, ids: Sequence[int]) -> tuple[str, int]:
        """A text of len(ids) tokens, as near to these as the tokenizer lets it be; and the tokens that it has in truth."""
        wanted, current = len(ids), list(ids)
        text, found = "", 0
        for _ in range(MOST_ROUNDS):
            text = self.tokenizer.decode(current)
            current = self.tokenizer.encode(text, add_special_tokens=False)
            found = len(current)
            if found == wanted:
                break
            current = current[:wanted] + self.draw(random, wanted - found)
        return text, found


def _steady_ids(tokenizer: Tokenizer) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Words with a space before them, where the tokenizer has enough of those, else all tokens that encode to themselves."""
    texts = {index: tokenizer.token_text(index) for index in tokenizer.get_vocab().values() if not tokenizer.is_special(index)}
    printable = {index: text for index, text in texts.items() if text.strip() and text.isprintable()}
    words = {index: text for index, text in printable.items() if text[0] == " " and text[1:].isascii() and text[1:].isalpha()}
    for candidates in (words, printable):
        indices = list(candidates)
        doubled = tokenizer.encode_batch([candidates[index] * 2 for index in indices], add_special_tokens=False)
        steady = [index for index, ids in zip(indices, doubled, strict=True) if ids == [index, index]]
        if len(steady) >= ENOUGH or (candidates is printable and steady):
            return np.array(sorted(steady), dtype=np.int64)
    raise ConfigError("no text of a known length can be made with this tokenizer", "use --dataset-name custom")


def ranges(ratio: str) -> tuple[float, float]:
    """--random-range-ratio for prompts and for outputs: one number, or JSON with input and output."""
    try:
        value = json.loads(ratio)
        both = (float(value["input"]), float(value["output"])) if isinstance(value, dict) else (float(value), float(value))
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"--random-range-ratio {ratio!r} is no ratio", '0.2, or {"input": 0.2, "output": 0}') from None
    if not all(0 <= r < 1 for r in both):
        raise ConfigError(f"--random-range-ratio {ratio} is not within [0, 1)", "0.2 draws from 80 % to 120 % of the length")
    return both


def lengths(random: np.random.Generator, length: int, ratio: float, count: int) -> list[int]:
    """`count` whole numbers from [length * (1 - ratio), length * (1 + ratio)], each equally likely, none below 1."""
    low, high = max(1, int(np.floor(length * (1 - ratio)))), max(1, int(np.ceil(length * (1 + ratio))))
    return [int(n) for n in random.integers(low, high + 1, count)]
