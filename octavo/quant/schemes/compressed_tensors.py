"""compressed-tensors: groups of layers, each with a scheme of its own, in the layouts that llm-compressor writes.

Source: the compressed-tensors project's formats (pack-quantized, int-quantized, float-quantized, naive-quantized, nvfp4-pack-quantized,
mxfp4-pack-quantized). Activations stay in the model's format, also where the checkpoint's groups name one for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from octavo.errors import ConfigError
from octavo.ops.weights import Coded, Layout, Tensors, unpack_codes
from octavo.quant import format as formats
from octavo.quant.format import COLUMNS, ROWS, Axis, Field, Filled, Role, Source
from octavo.quant.packed import bits_of
from octavo.quant.scales import check_scales, scale_rows
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named

_ONE = Axis(None)
_EIGHT_BITS = {"I8": ("int8", torch.int8), "F8_E4M3": ("float8_e4m3", torch.float8_e4m3fn)}


@dataclass(frozen=True, slots=True)
class EightBit:
    """`weight` of int8 or E4M3, with `weight_scale` for the tensor, for each row or for blocks; symmetric."""

    number_format: str
    strategy: str
    block: tuple[int, int]
    has_input_scale: bool

    @property
    def fields(self) -> tuple[Field, ...]:
        _, dtype = _EIGHT_BITS[self.number_format]
        axes = {
            "tensor": (_ONE,),
            "channel": (ROWS, _ONE),
            "block": (Axis("rows", self.block[0]), Axis("columns", self.block[1])),
        }[self.strategy]
        fields = (Field("weight", (ROWS, COLUMNS), dtype, self.number_format), Field("weight_scale", axes, torch.float32))
        return (*fields, Field("input_scale", (_ONE,), torch.float32, default=1.0)) if self.has_input_scale else fields

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        code, _ = _EIGHT_BITS[self.number_format]
        codes, scales = filled.tensors["weight"].view(torch.uint8), filled.tensors["weight_scale"]
        check_scales(filled.path, scales)
        if self.strategy == "block":
            layout = Coded(code=code, group=self.block[1], shares_scale_rows=True)
            return layout, (codes, scales, scale_rows(filled, self.block[0]))
        if self.strategy == "tensor":
            scales = filled.per_row(scales)[:, None].contiguous()
        return Coded(code=code, group=0), (codes, scales)


@dataclass(frozen=True, slots=True)
class Packed:
    """`weight_packed`: integers of 4 or 8 bits in words along the columns, half the range added; group 0: a scale for each row."""

    bits: int
    group: int
    is_symmetric: bool
    is_ordered: bool

    @property
    def fields(self) -> tuple[Field, ...]:
        each = 32 // self.bits
        groups = Axis("all columns" if self.is_ordered else "columns", self.group) if self.group else _ONE
        fields = [
            Field("weight_packed", (ROWS, Axis("columns", each)), torch.int32, "I32"),
            Field("weight_scale", (ROWS, groups), torch.bfloat16),
            Field("weight_shape", (Axis(None, size=2),), torch.int64, "I64"),
        ]
        if not self.is_symmetric:
            fields.append(Field("weight_zero_point", (Axis("rows", each), groups), torch.int32, "I32"))
        if self.is_ordered:
            fields.append(Field("weight_g_idx", (COLUMNS,), torch.int32, "I32"))
        return tuple(fields)

    @property
    def can_join(self) -> bool:
        return not self.is_ordered

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        scales = filled.tensors["weight_scale"]
        check_scales(filled.path, scales)
        tensors = [bits_of(filled.tensors["weight_packed"]), scales]
        if not self.is_symmetric:
            zeros = unpack_codes(bits_of(filled.tensors["weight_zero_point"].t()), self.bits, filled.num_rows)
            tensors.append(zeros.t().contiguous())
        if self.is_ordered:
            tensors.append(filled.tensors["weight_g_idx"][0].contiguous())
        layout = Coded(
            code=f"int{self.bits}_offset" if self.is_symmetric else f"uint{self.bits}",
            group=0 if self.is_ordered else self.group,
            scale="bfloat16",
            has_zeros=not self.is_symmetric,
            has_column_groups=self.is_ordered,
        )
        return layout, tuple(tensors)


@dataclass(frozen=True, slots=True)
class FourBitFloat:
    """`weight_packed`: E2M1, two to a byte, the first in the low half. NVFP4: E4M3 scales of 16 and one for the tensor, which divides.
    MXFP4: powers of two for each 32.
    """

    is_nvfp4: bool
    has_input_scale: bool

    @property
    def fields(self) -> tuple[Field, ...]:
        packed = Field("weight_packed", (ROWS, Axis("columns", 2)), torch.uint8, "U8")
        if not self.is_nvfp4:
            return packed, Field("weight_scale", (ROWS, Axis("columns", 32)), torch.uint8, "U8")
        fields = (
            packed,
            Field("weight_scale", (ROWS, Axis("columns", 16)), torch.float8_e4m3fn, "F8_E4M3"),
            Field("weight_global_scale", (_ONE,), torch.float32),
        )
        return (*fields, Field("input_global_scale", (_ONE,), torch.float32, default=1.0)) if self.has_input_scale else fields

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        codes, scales = filled.tensors["weight_packed"], filled.tensors["weight_scale"]
        if not self.is_nvfp4:
            return Coded(code="float4_e2m1", group=32, scale="e8m0"), (codes, scales)
        check_scales(filled.path, scales)
        whole = filled.tensors["weight_global_scale"]
        check_scales(filled.path, 1 / whole)
        layout = Coded(code="float4_e2m1", group=16, scale="float8_e4m3", has_row_scales=True)
        return layout, (codes, scales, filled.per_row(1 / whole))


class Scheme(formats.Scheme):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        config = source.config
        if not config.get("config_groups"):
            raise ConfigError("quantization_config of compressed-tensors has no config_groups", "the checkpoint must say what it is in")
        self._format = str(config.get("format", "dense"))
        self._groups: list[Mapping[str, Any]] = list(config["config_groups"].values())
        self._plain = list(config.get("ignore") or ())

    def weight(self, path: str, role: Role) -> formats.Format:
        if role in ("embedding", "router") or named(path, self._plain):
            return unquantized.Format(self.dtype)
        for group in self._groups:
            targets = group.get("targets") or ["Linear"]
            if (role != "head" and "Linear" in targets) or named(path, [target for target in targets if target != "Linear"]):
                return self._of(path, group)
        return unquantized.Format(self.dtype)

    def _of(self, path: str, group: Mapping[str, Any]) -> formats.Format:
        weights = group.get("weights")
        name = str(group.get("format") or self._format)
        if weights is None or name == "dense":
            return unquantized.Format(self.dtype)
        activations = group.get("input_activations") or {}
        is_static = bool(activations) and activations.get("dynamic") is False
        strategy, bits = str(weights.get("strategy", "tensor")), int(weights.get("num_bits", 8))
        if name == "pack-quantized" and bits in (4, 8) and strategy in ("group", "channel"):
            is_ordered = weights.get("actorder") == "group"
            size = int(weights.get("group_size") or 0) if strategy == "group" else 0
            return Packed(bits, size, bool(weights.get("symmetric", True)), is_ordered)
        if name in ("int-quantized", "float-quantized", "naive-quantized") and bits == 8 and strategy in ("tensor", "channel", "block"):
            rows, columns = weights.get("block_structure") or (1, 1)
            number_format = "F8_E4M3" if weights.get("type") == "float" else "I8"
            if weights.get("symmetric", True):
                return EightBit(number_format, strategy, (int(rows), int(columns)), is_static)
        if name in ("nvfp4-pack-quantized", "mxfp4-pack-quantized"):
            return FourBitFloat(name.startswith("nvfp4"), is_static or bool(activations))
        raise ConfigError(
            f"quantization_config: {path} is in {name} of {bits} bits by {strategy}, symmetric {weights.get('symmetric', True)}, "
            "which octavo does not read",
            "octavo reads pack-quantized of 4 and 8 bits, int-, float- and naive-quantized of 8, nvfp4- and mxfp4-pack-quantized",
        )
