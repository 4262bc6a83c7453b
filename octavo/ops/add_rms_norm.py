"""Add and norm: the residual takes x in the model's dtype, and the norm of the sum is the next input."""

from collections.abc import Iterator

import torch

from octavo.ops.rms_norm import Case, Facts, normalise
from octavo.ops.rms_norm import cases as norm_cases

__all__ = ["Case", "Facts", "Reference", "cases"]


class Reference:
    """residual += x; out = norm(residual) * weight. All [tokens, width]; out may be x itself."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    def __call__(self, out: torch.Tensor, residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
        residual.add_(x)
        out.copy_(normalise(residual, weight, self.facts))


def cases() -> Iterator[Case]:
    """The norm's cases that have whole rows."""
    return (case for case in norm_cases() if len(case.shape) == 1)
