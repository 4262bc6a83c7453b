"""compressed-tensors: groups of layers, each with a scheme of its own, in the layouts that llm-compressor writes.

Source: the compressed-tensors project's formats, pack-quantized to mxfp8-quantized. Activations are int8 where the
checkpoint's groups say so for int8 weights (octavo/quant/int8_activations.py); else they stay in the model's format, whatever the groups say.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from octavo.errors import ConfigError
from octavo.ops.weights import SCALES, Coded, Layout, Tensors, unpack_codes
from octavo.quant import format as formats
from octavo.quant import int8_activations
from octavo.quant.format import COLUMNS, ROWS, Axis, Field, Filled, Role, Source
from octavo.quant.packed import bits_of
from octavo.quant.scales import check_scales, scale_rows, stored_scale
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named

_ONE = Axis(None)
_EIGHT_BITS = {"I8": ("int8", torch.int8), "F8_E4M3": ("float8_e4m3", torch.float8_e4m3fn)}
_FLOATS = {4: "float4_e2m1", 6: "float6_e2m3"}
_READ = (
    "octavo reads pack-quantized of 2 to 8 bits, int-, float- and naive-quantized of 8, nvfp4-, mxfp4- and mxfp6-pack-quantized and "
    "mxfp8-quantized"
)


@dataclass(frozen=True, slots=True)
class EightBit:
    """`weight` of int8 or E4M3, with `weight_scale` for the tensor, for each row, for groups of columns or for blocks.

    group: columns that share a scale, rows: rows that do; 0: all. extras: what the checkpoint has for activations.
    """

    number_format: str
    strategy: str
    rows: int
    group: int
    scale: str
    is_symmetric: bool
    extras: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        _, dtype = _EIGHT_BITS[self.number_format]
        groups = Axis("columns", self.group) if self.group else _ONE
        axes = {"tensor": (_ONE,), "scalar": (), "block": (Axis("rows", self.rows), groups)}.get(self.strategy, (ROWS, groups))
        scales = Field("weight_scale", axes, SCALES[self.scale], "U8" if self.scale == "e8m0" else None)
        zeros = () if self.is_symmetric else (Field("weight_zero_point", axes, torch.int8, "I8"),)
        return (Field("weight", (ROWS, COLUMNS), dtype, self.number_format), scales, *zeros, *self.extras)

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        code, _ = _EIGHT_BITS[self.number_format]
        codes, scales = filled.tensors["weight"].view(torch.uint8), filled.tensors["weight_scale"]
        check_scales(filled.path, scales, self.scale)
        zeros = ()
        if not self.is_symmetric:  # zeros are unsigned where kernels read them: both are moved by half the range
            code, codes = "uint8", codes ^ 128
            zeros = (self._of_rows(filled, filled.tensors["weight_zero_point"].view(torch.uint8) ^ 128),)
        if self.strategy == "block":
            layout = Coded(code=code, group=self.group, scale=self.scale, shares_scale_rows=True)
            return layout, (codes, scales, scale_rows(filled, self.rows))
        layout = Coded(code=code, group=self.group, scale=self.scale, has_zeros=not self.is_symmetric)
        return layout, (codes, self._of_rows(filled, scales), *zeros)

    def _of_rows(self, filled: Filled, values: torch.Tensor) -> torch.Tensor:
        """Scales or zeros [rows, groups]."""
        return filled.per_row(values)[:, None].contiguous() if self.strategy in ("tensor", "scalar") else values


@dataclass(frozen=True, slots=True)
class Packed:
    """`weight_packed`: integers of a few bits as a run of bits along the columns, half the range added; group 0: a scale for each row."""

    bits: int
    group: int
    scale: str
    is_symmetric: bool
    is_ordered: bool
    extras: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        words = self.bits // math.gcd(self.bits, 32)
        per = 32 // math.gcd(self.bits, 32)  # as few positions as fill whole words
        groups = Axis("all columns" if self.is_ordered else "columns", self.group) if self.group else _ONE
        fields = [
            Field("weight_packed", (ROWS, Axis("columns", per, words)), torch.int32, "I32"),
            Field("weight_scale", (ROWS, groups), SCALES[self.scale]),
            Field("weight_shape", (Axis(None, size=2),), torch.int64, "I64"),
        ]
        if not self.is_symmetric:
            fields.append(Field("weight_zero_point", (Axis("rows", per, words), groups), torch.int32, "I32"))
        if self.is_ordered:
            fields.append(Field("weight_g_idx", (COLUMNS,), torch.int32, "I32"))
        return (*fields, *self.extras)

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
            scale=self.scale,
            has_zeros=not self.is_symmetric,
            has_column_groups=self.is_ordered,
        )
        return layout, tuple(tensors)


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """`weight_packed`: floats of 4 or 6 bits as a run of bits. NVFP4: E4M3 scales of 16 and one for the tensor, which divides. MXFP4, MXFP6:
    powers of two for each 32.
    """

    bits: int
    is_nvfp4: bool
    extras: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        each = 8 // math.gcd(self.bits, 8)
        packed = Field("weight_packed", (ROWS, Axis("columns", each, self.bits * each // 8)), torch.uint8, "U8")
        if not self.is_nvfp4:
            return packed, Field("weight_scale", (ROWS, Axis("columns", 32)), torch.uint8, "U8"), *self.extras
        return (
            packed,
            Field("weight_scale", (ROWS, Axis("columns", 16)), torch.float8_e4m3fn, "F8_E4M3"),
            Field("weight_global_scale", (_ONE,), torch.float32),
            *self.extras,
        )

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        codes, scales = filled.tensors["weight_packed"], filled.tensors["weight_scale"]
        if not self.is_nvfp4:
            check_scales(filled.path, scales, "e8m0")
            return Coded(code=_FLOATS[self.bits], group=32, scale="e8m0"), (codes, scales)
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
        self._refuse_what_is_not_read(config)
        self._format = str(config.get("format", "dense"))
        self._groups: list[Mapping[str, Any]] = list(config["config_groups"].values())
        self._plain = list(config.get("ignore") or ())
        self._number_format, self._shape = source.number_format, source.shape

    def weight(self, path: str, role: Role) -> formats.Format:
        # targets mean classes of layers, of which heads and routers are; a checkpoint that has left them plain need not say so
        is_plain = role in ("embedding", "head", "router") and self._number_format(f"{path}.weight_scale") is None
        if is_plain or named(path, self._plain):
            return unquantized.Format(self.dtype)
        kind = "Embedding" if role == "embedding" else "Linear"
        for group in self._groups:
            targets = group.get("targets") or ["Linear"]
            if kind in targets or named(path, [target for target in targets if target not in ("Linear", "Embedding")]):
                return self._with_activations(path, group.get("input_activations"), self._of(path, group))
        return unquantized.Format(self.dtype)

    def _with_activations(self, path: str, settings: Mapping[str, Any] | None, format: formats.Format) -> formats.Format:
        """The format of weights, with coded activations where octavo multiplies with them."""
        if not settings or not isinstance(format, EightBit) or format.number_format != "I8" or format.group or not format.is_symmetric:
            return format
        activation = int8_activations.of_config(path, settings)
        return format if activation is None else int8_activations.Format(format, activation)

    def _of(self, path: str, group: Mapping[str, Any]) -> formats.Format:
        weights, name = group.get("weights"), str(group.get("format") or self._format)
        if weights is None or name == "dense":
            return unquantized.Format(self.dtype)
        strategy, bits, kind = str(weights.get("strategy", "tensor")), int(weights.get("num_bits", 8)), weights.get("type", "int")
        is_symmetric, group_size = bool(weights.get("symmetric", True)), int(weights.get("group_size") or 0)
        scale, extras = stored_scale(self._number_format(f"{path}.weight_scale"), "float32"), self._extras(path)
        if name == "pack-quantized" and 2 <= bits <= 8 and strategy in ("group", "channel") and kind == "int":
            is_ordered = self._number_format(f"{path}.weight_g_idx") is not None or weights.get("actorder") in ("group", True)
            return Packed(bits, group_size if strategy == "group" else 0, scale, is_symmetric, is_ordered, extras)
        if name in ("int-quantized", "float-quantized", "naive-quantized", "mxfp8-quantized") and (bits == 8 or kind == "int"):
            number_format = "F8_E4M3" if kind == "float" else "I8"
            if strategy == "tensor":
                strategy = "scalar" if self._shape(f"{path}.weight_scale") == () else "tensor"
                return EightBit(number_format, strategy, 0, 0, scale, is_symmetric, extras)
            if strategy in ("channel", "group"):
                scale = "e8m0" if name.startswith("mx") else scale
                return EightBit(number_format, strategy, 0, group_size if strategy == "group" else 0, scale, is_symmetric, extras)
            if strategy == "block" and is_symmetric:
                rows, columns = weights.get("block_structure") or (128, 128)
                return EightBit(number_format, strategy, int(rows), int(columns), scale, is_symmetric, extras)
        if name in ("nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp6-pack-quantized") and is_symmetric:
            return SmallFloat(6 if "fp6" in name else 4, name.startswith("nvfp4"), extras)
        what = f"{bits} bits ({kind}) by {strategy}, symmetric {is_symmetric}"
        raise ConfigError(f"quantization_config: {path} is in {name} of {what}, which octavo does not read", _READ)

    def _extras(self, path: str) -> tuple[Field, ...]:
        """What a layer has for its activations."""
        found = []
        for name in ("input_scale", "input_global_scale", "input_zero_point"):
            number_format, shape = self._number_format(f"{path}.{name}"), self._shape(f"{path}.{name}")
            if number_format is not None and shape is not None:
                dtype = torch.int8 if number_format == "I8" else torch.float32
                found.append(Field(name, tuple(Axis(None, size=size) for size in shape), dtype, "I8" if number_format == "I8" else None))
        return tuple(found)

    @staticmethod
    def _refuse_what_is_not_read(config: Mapping[str, Any]) -> None:
        """Keys that change what weights mean, or what else is quantized."""
        sparsity = config.get("sparsity_config") or {}
        wrong = {
            "sparsity_config": sparsity.get("format", "dense") != "dense",
            "transform_config": bool((config.get("transform_config") or {}).get("config_groups")),
            "moe_sparsity_config": bool(config.get("moe_sparsity_config")),
            "kv_cache_scheme": bool(config.get("kv_cache_scheme")),
            "quantization_status": config.get("quantization_status") not in (None, "compressed") and config.get("format") != "dense",
        }
        for key, is_wrong in wrong.items():
            if is_wrong:
                raise ConfigError(f"quantization_config: {key} {config[key]!r} is not read here", f"{_READ}, compressed and not sparse")
        for name, group in config["config_groups"].items():
            if not isinstance(group, Mapping):
                raise ConfigError(f"quantization_config: config group {name!r} only names a preset", "write out its weights and targets")
            if group.get("output_activations"):
                raise ConfigError(f"quantization_config: {name} has output_activations, which are not read here", _READ)
