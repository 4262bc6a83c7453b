"""allowed_token_ids: all other tokens are out."""

from typing import Self

import torch

from octavo.protocol.step import NewRow


class AllowedTokenIds:
    def __init__(self, ids: list[int]) -> None:
        self._ids = torch.tensor(ids, dtype=torch.int64)

    @classmethod
    def of(cls, new: NewRow, vocab_size: int) -> Self | None:
        return cls(new.sampling.allowed_token_ids) if new.sampling is not None and new.sampling.allowed_token_ids else None

    def apply(self, logits: torch.Tensor, position: int) -> None:
        kept = logits[self._ids]
        logits.fill_(float("-inf"))
        logits[self._ids] = kept

    def note(self, token: int) -> None:
        """Nothing depends on what was drawn."""
