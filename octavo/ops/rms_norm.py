"""RMS norm: each row divided by its root mean square and multiplied by a weight, in float32 inside.

Zhang and Sennrich, Root Mean Square Layer Normalization, 2019. Where the result is rounded differs between families, so it is a fact:
llama casts the normalised row to the model's dtype and then multiplies; gemma multiplies by 1 + weight in float32 and casts last.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a norm when the model is finished."""

    width: int
    dtype: torch.dtype
    eps: float
    weight_dtype: torch.dtype
    offset: float = 0.0  # added to the weight; 1.0 in gemma
    cast_before_weight: bool = True  # False: one cast, after the product


def normalise(x: torch.Tensor, weight: torch.Tensor, facts: Facts) -> torch.Tensor:
    """The norm of each row of x [..., width], in x's dtype."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + facts.eps)
    if facts.cast_before_weight:
        wide = wide.to(x.dtype).to(torch.float32)
    return (wide * (facts.offset + weight.to(torch.float32))).to(x.dtype)


class Reference:
    """out = norm(x) * weight, out and x [..., width] with any strides but 1 in the last dimension; out may be x itself."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    def __call__(self, out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
        out.copy_(normalise(x, weight, self.facts))


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of one call: `shape` without the width; `stride_rows` wider than the row when x is a view of a fused buffer."""

    facts: Facts
    shape: tuple[int, ...]
    row_stride: int

    def __str__(self) -> str:
        f = self.facts
        form = "llama" if f.cast_before_weight else "gemma"
        return f"{'x'.join(map(str, self.shape))}x{f.width}-{str(f.dtype)[6:]}-{form}-stride{self.row_stride}"

    def weight(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return (torch.randn(self.facts.width, generator=generator) * 0.5 + 1 - self.facts.offset).to(self.facts.weight_dtype)

    def x(self) -> torch.Tensor:
        """[*shape, width]; with more than one leading dimension, a view of rows `row_stride` apart."""
        generator = torch.Generator().manual_seed(2)
        heads = 1
        for extent in self.shape[1:]:
            heads *= extent
        buffer = torch.randn(self.shape[0], max(self.row_stride, heads * self.facts.width), generator=generator).to(self.facts.dtype)
        return buffer[:, : heads * self.facts.width].view(*self.shape, self.facts.width)


def cases() -> Iterator[Case]:
    """Widths of real models and awkward ones, both forms, plain rows and heads inside a fused buffer."""
    for dtype in (torch.float32, torch.bfloat16):
        for width in (576, 64, 2048, 21, 1):
            yield Case(Facts(width=width, dtype=dtype, eps=1e-5, weight_dtype=dtype), (5,), 0)
        gemma = Facts(width=640, dtype=dtype, eps=1e-6, weight_dtype=dtype, offset=1.0, cast_before_weight=False)
        yield Case(gemma, (3,), 700)
        yield Case(Facts(width=896, dtype=dtype, eps=1e-6, weight_dtype=torch.float32), (130,), 0)
        yield Case(Facts(width=128, dtype=dtype, eps=1e-6, weight_dtype=dtype), (7, 4), 1024)
        yield Case(Facts(width=256, dtype=dtype, eps=1e-6, weight_dtype=dtype, offset=1.0, cast_before_weight=False), (2, 3), 1280)
        yield Case(Facts(width=32, dtype=dtype, eps=1e-6, weight_dtype=dtype, offset=1.0), (1, 2), 64)
    yield Case(Facts(width=64, dtype=torch.float16, eps=1e-5, weight_dtype=torch.float16), (3,), 0)
