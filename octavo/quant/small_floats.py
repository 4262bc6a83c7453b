"""Weights of floats of 4 or 6 bits with scales for groups of columns: MXFP4, MXFP6 and NVFP4, under the several names that they have."""

import math
from dataclasses import dataclass

import torch

from octavo.ops.weights import Coded, Layout, Tensors
from octavo.quant.format import ROWS, Axis, Field, Filled

_CODES = {4: "float4_e2m1", 6: "float6_e2m3"}
MX_GROUP, NVFP4_GROUP = 32, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MX:
    """A run of bits, the first number lowest, with powers of two as scales of 32. in_blocks: the 16 bytes of a group have an axis of their
    own (gpt-oss).
    """

    bits: int = 4
    weight_name: str = "weight"
    weight_format: str = "U8"
    scale_name: str = "weight_scale"
    scale_format: str = "U8"
    in_blocks: bool = False
    extras: tuple[Field, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        each = 8 // math.gcd(self.bits, 8)
        columns: tuple[Axis, ...] = (Axis("columns", each, self.bits * each // 8),)
        groups = Axis("columns", MX_GROUP)
        if self.in_blocks:
            columns = (groups, Axis(None, size=MX_GROUP * self.bits // 8))
        dtype = torch.int8 if self.weight_format == "I8" else torch.uint8
        return (
            Field(self.weight_name, (ROWS, *columns), dtype, self.weight_format),
            Field(self.scale_name, (ROWS, groups), torch.uint8, self.scale_format, must_be="finite"),
            *self.extras,
        )

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        codes, scales = filled.tensors[self.weight_name].view(torch.uint8).flatten(1), filled.tensors[self.scale_name]
        return Coded(code=_CODES[self.bits], group=MX_GROUP, scale="e8m0"), (codes, scales)


@dataclass(frozen=True, slots=True, kw_only=True)
class NVFP4:
    """E2M1, two to a byte, the first in the low half, with E4M3 scales of 16 and one for the tensor; divides: by which they are divided."""

    weight_name: str
    whole_name: str
    whole_shape: tuple[int, ...]
    divides: bool
    extras: tuple[Field, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        return (
            Field(self.weight_name, (ROWS, Axis("columns", 2)), torch.uint8, "U8"),
            Field("weight_scale", (ROWS, Axis("columns", NVFP4_GROUP)), torch.float8_e4m3fn, "F8_E4M3", must_be="not negative"),
            Field(self.whole_name, tuple(Axis(None, size=size) for size in self.whole_shape), torch.float32, must_be="positive"),
            *self.extras,
        )

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        scales, whole = filled.tensors["weight_scale"], filled.tensors[self.whole_name]
        factor = 1 / whole if self.divides else whole
        layout = Coded(code="float4_e2m1", group=NVFP4_GROUP, scale="float8_e4m3", has_row_scales=True)
        return layout, (filled.tensors[self.weight_name], scales, filled.per_row(factor))
