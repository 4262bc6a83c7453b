"""add_rms_norm: the norm's kernel with the sum into the residual before it."""

import torch

from octavo.ops.cpu import norm
from octavo.ops.rms_norm import Facts


class Implementation:
    """add_rms_norm in numba: all tensors [tokens, width]."""

    refuses = staticmethod(norm.refuses)

    def __init__(self, facts: Facts) -> None:
        self._norm = norm.Norm(facts, adds=True)

    def __call__(self, out: torch.Tensor, residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
        self._norm.run(out, x, residual, weight)
