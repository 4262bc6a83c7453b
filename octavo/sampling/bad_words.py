"""bad_words: a token that would complete one of the sequences in the output is out. A sequence of one token is out always."""

from typing import Self

import torch

from octavo.protocol.columns import unpack
from octavo.protocol.step import NewRow


class BadWords:
    def __init__(self, sequences: list[list[int]], output: list[int]) -> None:
        self._always = torch.tensor([sequence[0] for sequence in sequences if len(sequence) == 1], dtype=torch.int64)
        self._longer = [(tuple(sequence[:-1]), sequence[-1]) for sequence in sequences if len(sequence) > 1]
        longest = max((len(beginning) for beginning, _ in self._longer), default=0)
        self._last = output[len(output) - min(longest, len(output)) :]
        self._longest = longest

    @classmethod
    def of(cls, new: NewRow, vocab_size: int) -> Self | None:
        if new.sampling is None or not new.sampling.bad_words_token_ids:
            return None
        sequences = [sequence for sequence in new.sampling.bad_words_token_ids if sequence and 0 <= sequence[-1] < vocab_size]
        return cls(sequences, unpack(new.token_ids)[new.num_prompt_tokens :].tolist()) if sequences else None

    def apply(self, logits: torch.Tensor, position: int) -> None:
        logits[self._always] = float("-inf")
        for beginning, last in self._longer:
            if tuple(self._last[-len(beginning) :]) == beginning:
                logits[last] = float("-inf")

    def note(self, token: int) -> None:
        self._last.append(token)
        del self._last[: max(0, len(self._last) - self._longest)]
