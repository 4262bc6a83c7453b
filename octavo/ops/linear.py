"""Linear: out = x weight^T (+ bias). Products are summed in float32 or better; the sum is rounded once, to the output's dtype.

A weight that is not plain numbers is decoded, rounded to x's dtype, and multiplied as plain numbers would be.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from octavo.ops import weights, weights_cases
from octavo.ops.weights import Dense, Layout, Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a product when the model is finished. dtype: of x and bias. layout: None = plain numbers of dtype."""

    in_features: int
    out_features: int
    dtype: torch.dtype
    out_dtype: torch.dtype | None = None  # None: dtype; float32 for logits
    has_bias: bool = False
    layout: Layout | None = None

    @property
    def is_dense(self) -> bool:
        return self.layout is None or isinstance(self.layout, Dense)

    @property
    def result(self) -> torch.dtype:
        return self.out_dtype or self.dtype


class Reference:
    """out [rows, out_features], x [rows, in_features] (rows of both may be strided), packed as `pack` made it, bias [out_features].

    The packed weight of the reference is the weight itself: [out_features, in_features], or the tensors of its layout.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    @staticmethod
    def pack(weight: torch.Tensor | Tensors, facts: Facts) -> torch.Tensor | Tensors:
        return weight

    def __call__(self, out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | Tensors, bias: torch.Tensor | None = None) -> None:
        if isinstance(weight, tuple):
            facts = self.facts
            assert facts.layout is not None
            weight = weights.decode(facts.layout, weight, facts.out_features, facts.in_features).to(facts.dtype)
        if self.facts.result == self.facts.dtype:
            out.copy_(functional.linear(x, weight, bias))
            return
        wide = torch.float32
        out.copy_(functional.linear(x.to(wide), weight.to(wide), None if bias is None else bias.to(wide)))


@dataclass(frozen=True, slots=True)
class Case:
    """A product; x's rows lie `stride` numbers apart (0: dense), out's `out_stride`."""

    facts: Facts
    rows: int
    stride: int = 0
    out_stride: int = 0

    def __str__(self) -> str:
        f = self.facts
        strides = f"-stride{self.stride},{self.out_stride}" if self.stride or self.out_stride else ""
        bias = "-bias" if f.has_bias else ""
        layout = "" if f.layout is None else f"-{weights_cases.name(f.layout)}"
        return f"{self.rows}x{f.in_features}x{f.out_features}-{str(f.dtype)[6:]}-{str(f.result)[6:]}{bias}{strides}{layout}"

    def x(self) -> torch.Tensor:
        """[rows, stride]: a case uses the first in_features of each row."""
        return _normal((self.rows, max(self.stride, self.facts.in_features)), 1).to(self.facts.dtype)

    def weight(self) -> torch.Tensor | Tensors:
        """[out_features, in_features] or the tensors of the layout, such that results are of magnitude 1."""
        f = self.facts
        if f.layout is not None:
            return weights_cases.random(f.layout, f.out_features, f.in_features)
        return _normal((f.out_features, f.in_features), 2).mul(f.in_features**-0.5).to(f.dtype)

    def numbers(self) -> torch.Tensor:
        """The weight's numbers, [out_features, in_features], rounded to the dtype."""
        f, weight = self.facts, self.weight()
        if isinstance(weight, torch.Tensor):
            return weight
        assert f.layout is not None
        return weights.decode(f.layout, weight, f.out_features, f.in_features).to(f.dtype)

    def bias(self) -> torch.Tensor | None:
        return _normal((self.facts.out_features,), 3).to(self.facts.dtype) if self.facts.has_bias else None


def _normal(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def cases() -> Iterator[Case]:
    """Every remainder of rows, columns and depth; strides, bias, float32 results; more rows than one block of them."""
    float32, bfloat16 = torch.float32, torch.bfloat16
    for dtype in (float32, bfloat16):
        for rows in (1, 2, 3, 4, 5, 7, 8, 9, 13, 33):
            yield Case(Facts(in_features=64, out_features=80, dtype=dtype), rows)
        for width, depth in ((1, 2), (15, 6), (17, 30), (31, 8), (48, 576), (49, 3), (100, 1), (33, 65), (576, 1536)):
            yield Case(Facts(in_features=depth, out_features=width, dtype=dtype, has_bias=width % 2 == 1), 11)
            yield Case(Facts(in_features=depth, out_features=width, dtype=dtype), 1)
        yield Case(Facts(in_features=40, out_features=70, dtype=dtype, has_bias=True), 6, stride=57, out_stride=75)
        yield Case(Facts(in_features=41, out_features=70, dtype=dtype), 300, stride=41, out_stride=200)
        yield Case(Facts(in_features=4100, out_features=20, dtype=dtype), 19)
        yield Case(Facts(in_features=24, out_features=32, dtype=dtype), 0)
    yield Case(Facts(in_features=576, out_features=130, dtype=bfloat16, out_dtype=float32), 5)
    yield Case(Facts(in_features=33, out_features=19, dtype=bfloat16, out_dtype=float32, has_bias=True), 9)
    yield Case(Facts(in_features=32, out_features=19, dtype=float32, out_dtype=bfloat16), 9)
    yield Case(Facts(in_features=32, out_features=19, dtype=torch.float16), 3)
    yield Case(Facts(in_features=32, out_features=19, dtype=torch.float16, out_dtype=float32, has_bias=True), 3)
    for layout in weights_cases.LAYOUTS:
        step = weights_cases.step(layout)
        for dtype in (float32, bfloat16):
            yield Case(Facts(in_features=2 * step if step > 1 else 144, out_features=37, dtype=dtype, has_bias=True, layout=layout), 7)
        yield Case(Facts(in_features=step if step > 1 else 97, out_features=19, dtype=bfloat16, out_dtype=float32, layout=layout), 1)
    yield Case(Facts(in_features=96, out_features=50, dtype=bfloat16, layout=weights.Blocks("Q8_0")), 9, stride=110, out_stride=60)
    yield Case(Facts(in_features=32, out_features=5, dtype=torch.float16, layout=weights.Blocks("Q8_0")), 2)
    yield Case(Facts(in_features=32, out_features=5, dtype=float32, layout=weights.Blocks("Q8_0")), 0)
