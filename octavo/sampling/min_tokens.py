"""min_tokens: what would end the text is out until so many tokens of output are there. The prompt does not count."""

from typing import Self

import torch

from octavo.protocol.step import NewRow


class MinTokens:
    def __init__(self, stop_ids: list[int], first_free: int) -> None:
        self._ids = torch.tensor(stop_ids, dtype=torch.int64)
        self._first_free = first_free  # the first position at which the text may end

    @classmethod
    def of(cls, new: NewRow, vocab_size: int) -> Self | None:
        ids = [token for token in new.stop_ids if 0 <= token < vocab_size]
        if new.sampling is None or not new.sampling.min_tokens or not ids:
            return None
        return cls(ids, new.num_prompt_tokens + new.sampling.min_tokens)

    def apply(self, logits: torch.Tensor, position: int) -> None:
        if position < self._first_free:
            logits[self._ids] = float("-inf")

    def note(self, token: int) -> None:
        """The position says it all."""
