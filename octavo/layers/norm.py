"""RMSNorm: with or without taking the sum into the residual on the way."""

from collections.abc import Iterator

import torch

from octavo.layers.choices import Choices
from octavo.layers.stored import Layer, Stored
from octavo.ops.rms_norm import Facts
from octavo.quant.format import Scheme


class RMSNorm(Layer):
    """offset: what the family adds to the weight. cast_before_weight: False where the product with the weight is rounded, not the norm."""

    def __init__(self, size: int, eps: float, offset: float = 0.0, cast_before_weight: bool = True) -> None:
        super().__init__()
        self.size = size
        self.eps = eps
        self.offset = offset
        self.cast_before_weight = cast_before_weight

    def create(self, scheme: Scheme, device: torch.device, path: str) -> None:
        self.weight = scheme.vector(self.size, device)

    def stored(self, path: str) -> Iterator[Stored]:
        yield Stored(f"{path}.weight", (self.size,), self.weight)

    def finish(self, choices: Choices) -> None:
        facts = Facts(
            width=self.size,
            dtype=self.weight.dtype,
            eps=self.eps,
            weight_dtype=self.weight.dtype,
            offset=self.offset,
            cast_before_weight=self.cast_before_weight,
        )
        self._norm = choices.take("rms_norm", facts)
        self._add_norm = choices.take("add_rms_norm", facts)

    def forward(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """out = norm(x), both [..., size]; out may be x."""
        self._norm(out, x, self.weight)

    def add(self, out: torch.Tensor, residual: torch.Tensor, x: torch.Tensor) -> None:
        """residual += x; out = norm(residual), all [tokens, size]; out may be x."""
        self._add_norm(out, residual, x, self.weight)
