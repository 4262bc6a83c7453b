"""logit_bias: numbers added to the logits of chosen tokens."""

from typing import Self

import torch

from octavo.protocol.step import NewRow


class LogitBias:
    def __init__(self, bias: dict[int, float]) -> None:
        self._ids = torch.tensor(list(bias), dtype=torch.int64)
        self._values = torch.tensor(list(bias.values()), dtype=torch.float32)

    @classmethod
    def of(cls, new: NewRow, vocab_size: int) -> Self | None:
        return cls(new.sampling.logit_bias) if new.sampling is not None and new.sampling.logit_bias else None

    def apply(self, logits: torch.Tensor, position: int) -> None:
        logits[self._ids] += self._values

    def note(self, token: int) -> None:
        """Nothing depends on what was drawn."""
