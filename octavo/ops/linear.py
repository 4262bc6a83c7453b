"""Linear: out = x weight^T (+ bias). Products are summed in float32 or better; the sum is rounded once, to the output's dtype.

A weight that is not plain numbers is decoded and multiplied as plain numbers would be, each number rounded to x's dtype or not at all;
except where the activation is int8 too. Then the arithmetic is exact but for these roundings, each in float32:

    group       "int8_group": each 64 columns of a row of x; "int8_token", "int8_static": all of them
    scale[t, g] max |x[t, group g]| / 127, and 1 where that is 0; "int8_static": the weight's input scale
    q[t, k]     x[t, k] / scale[t, g], rounded to the nearest integer, ties to even, at least -128 and at most 127
    sum[t, n]   over the groups, from 0: + (the sum over k of q[t, k] * code[n, k], as an integer, rounded to float32) * scale[t, g]
    out[t, n]   sum[t, n] * weight scale[n], + bias[n]

A row of x with a number that is not finite gives nan. Every implementation has these very bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn import functional

from octavo.ops import weights, weights_cases
from octavo.ops.weights import Coded, Dense, Layout, Tensors

Activation = Literal["int8_group", "int8_token", "int8_static"]
INT8_GROUP = 64  # columns that share a scale with "int8_group"
INT8 = Coded(code="int8", group=0)  # the layout of weights that are multiplied with int8 activations
MOST_INT8_FEATURES = 1 << 17  # products of bytes that an int32 can add up


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a product when the model is finished. dtype: of x and bias. layout: None = plain numbers of dtype.

    activation: how x is coded for the product, None: not. With "int8_static" a float32 [1] follows the tensors of the layout: x's scale.
    """

    in_features: int
    out_features: int
    dtype: torch.dtype
    out_dtype: torch.dtype | None = None  # None: dtype; float32 for logits
    has_bias: bool = False
    layout: Layout | None = None
    activation: Activation | None = None

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
        if self.facts.activation is not None:
            assert isinstance(weight, tuple)
            self._multiply_int8(out, x, weight, bias)
            return
        if isinstance(weight, tuple):
            facts = self.facts
            assert facts.layout is not None
            weight = weights.decode(facts.layout, weight, facts.out_features, facts.in_features).to(facts.dtype)
        if self.facts.result == self.facts.dtype:
            out.copy_(functional.linear(x, weight, bias))
            return
        wide = torch.float32
        out.copy_(functional.linear(x.to(wide), weight.to(wide), None if bias is None else bias.to(wide)))

    def _multiply_int8(self, out: torch.Tensor, x: torch.Tensor, weight: Tensors, bias: torch.Tensor | None) -> None:
        codes, weight_scales, *input_scale = weight
        wide = x.float()
        total = torch.zeros(len(wide), len(codes))
        # float64 holds every such sum of integers exactly
        exact = codes.view(torch.int8).double()
        group = INT8_GROUP if self.facts.activation == "int8_group" else self.facts.in_features
        for start in range(0, self.facts.in_features, group):
            columns = slice(start, start + group)
            part = wide[:, columns]
            scales = input_scale[0] if input_scale else part.abs().amax(1, keepdim=True) / 127
            scales = torch.where(scales == 0, 1, scales)
            quantized = (part / scales).round().clamp(-128, 127).nan_to_num(0)
            scales = torch.where(part.isfinite().all(1, keepdim=True), scales, float("nan"))
            total += (quantized.double() @ exact[:, columns].t()).float() * scales
        results = total * weight_scales.view(1, -1)
        out.copy_(results if bias is None else results + bias.float())


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
        layout += "" if f.activation is None else f"-{f.activation}"
        return f"{self.rows}x{f.in_features}x{f.out_features}-{str(f.dtype)[6:]}-{str(f.result)[6:]}{bias}{strides}{layout}"

    def x(self) -> torch.Tensor:
        """[rows, stride]: a case uses the first in_features of each row."""
        return _normal((self.rows, max(self.stride, self.facts.in_features)), 1).to(self.facts.dtype)

    def weight(self) -> torch.Tensor | Tensors:
        """[out_features, in_features] or the tensors of the layout, such that results are of magnitude 1."""
        f = self.facts
        if f.layout is not None:
            tensors = weights_cases.random(f.layout, f.out_features, f.in_features)
            return (*tensors, torch.tensor([0.035])) if f.activation == "int8_static" else tensors
        return _normal((f.out_features, f.in_features), 2).mul(f.in_features**-0.5).to(f.dtype)

    def numbers(self) -> torch.Tensor:
        """The weight's numbers, [out_features, in_features], rounded to the dtype."""
        f, weight = self.facts, self.weight()
        if isinstance(weight, torch.Tensor):
            return weight
        assert f.layout is not None
        return weights.decode(f.layout, weight[: 2 if f.activation else None], f.out_features, f.in_features).to(f.dtype)

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
    yield Case(Facts(in_features=96, out_features=150, dtype=bfloat16, layout=weights.Blocks("Q4_1")), 300, stride=110, out_stride=160)
    yield Case(Facts(in_features=32, out_features=5, dtype=torch.float16, layout=weights.Blocks("Q8_0")), 2)
    yield Case(Facts(in_features=32, out_features=5, dtype=float32, layout=weights.Blocks("Q8_0")), 0)
    activations: tuple[Activation, ...] = ("int8_group", "int8_token", "int8_static")
    for activation in activations:
        for dtype in (float32, bfloat16):
            for rows in (1, 2, 3, 4, 5, 7, 8, 9, 33):
                yield Case(_int8(64, 80, dtype, activation), rows)
            for width, depth in ((1, 2), (15, 6), (17, 30), (48, 576), (49, 3), (100, 1), (33, 65), (31, 130)):
                yield Case(_int8(depth, width, dtype, activation, has_bias=width % 2 == 1), 11)
            yield Case(_int8(40, 70, dtype, activation, has_bias=True), 6, stride=57, out_stride=75)
        yield Case(_int8(41, 70, bfloat16, activation), 300, stride=41, out_stride=200)
        yield Case(_int8(4100, 20, bfloat16, activation, out_dtype=float32), 600)
        yield Case(_int8(24, 32, bfloat16, activation), 0)
        yield Case(_int8(24, 32, torch.float16, activation), 3)


def _int8(in_features: int, out_features: int, dtype: torch.dtype, activation: Activation, **changes: Any) -> Facts:
    return Facts(in_features=in_features, out_features=out_features, dtype=dtype, activation=activation, layout=INT8, **changes)
