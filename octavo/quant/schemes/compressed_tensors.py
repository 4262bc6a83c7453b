"""compressed-tensors: groups of layers, each with a scheme of its own, in the layouts that llm-compressor writes.

Source: the compressed-tensors project's formats, pack-quantized to mxfp8-quantized. Activations are int8 where the
groups say so for int8 weights (octavo/quant/int8_activations.py); else they stay in the model's format, whatever the groups say.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from octavo.errors import CheckpointError, ConfigError
from octavo.ops.weights import SCALES, Coded, Layout, Tensors, unpack_codes
from octavo.quant import eight_bit, int8_activations, settings, small_floats
from octavo.quant import format as formats
from octavo.quant.format import COLUMNS, ROWS, Axis, Field, Filled, Role, Source
from octavo.quant.packed import bits_of, check_groups
from octavo.quant.scales import stored_scale
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named

_FOR_ACTIVATIONS = ("input_scale", "input_global_scale", "input_zero_point")
_READ = (
    "octavo reads pack-quantized of 2 to 8 bits, int-, float- and naive-quantized of 8, nvfp4-, mxfp4- and mxfp6-pack-quantized and "
    "mxfp8-quantized"
)


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
        groups = Axis("all columns" if self.is_ordered else "columns", self.group) if self.group else eight_bit.ONE
        fields = [
            Field("weight_packed", (ROWS, Axis("columns", per, words)), torch.int32, "I32"),
            Field("weight_scale", (ROWS, groups), SCALES[self.scale], must_be="finite"),
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
        scales, shapes = filled.tensors["weight_scale"], filled.tensors["weight_shape"]
        if not shapes.is_meta and any(int(columns) != start[2] for (_, columns), start in zip(shapes, filled.starts, strict=True)):
            fact = f"{filled.path}.weight_shape is {shapes.tolist()}, and the weight has {filled.starts[0][2]} columns"
            raise CheckpointError(fact, "the checkpoint is damaged")
        tensors = [bits_of(filled.tensors["weight_packed"]), scales]
        if not self.is_symmetric:
            zeros = unpack_codes(bits_of(filled.tensors["weight_zero_point"].t()), self.bits, filled.num_rows)
            tensors.append(zeros.t().contiguous())
        if self.is_ordered:
            indices = filled.tensors["weight_g_idx"][0].contiguous()
            check_groups(f"{filled.path}.weight_g_idx", indices, scales.shape[1])
            tensors.append(indices)
        layout = Coded(
            code=f"int{self.bits}_offset" if self.is_symmetric else f"uint{self.bits}",
            group=0 if self.is_ordered else self.group,
            scale=self.scale,
            has_zeros=not self.is_symmetric,
            has_column_groups=self.is_ordered,
        )
        return layout, tuple(tensors)


class Scheme(formats.Scheme):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        config = source.config
        self._groups = list(self._read_groups(config).values())
        if not self._groups and not config.get("kv_cache_scheme"):
            raise ConfigError("quantization_config of compressed-tensors has no config_groups", "the checkpoint must say what it is in")
        self._refuse_what_is_not_read(config)
        self._format = settings.word(config, "format", "dense")
        self._plain = settings.names(config, "ignore")
        self._source = source

    def weight(self, path: str, role: Role) -> formats.Format:
        # targets mean classes of layers, of which heads and routers are; a checkpoint that has left them plain need not say so
        is_plain = role in ("embedding", "head", "router") and self._source.number_format(f"{path}.weight_scale") is None
        if is_plain or named(path, self._plain):
            return unquantized.Format(self.dtype)
        kind = "Embedding" if role == "embedding" else "Linear"
        for group in self._groups:
            targets = settings.names(group, "targets") or ["Linear"]
            if kind in targets or named(path, [target for target in targets if target not in ("Linear", "Embedding")]):
                return self._with_activations(path, settings.table(group, "input_activations"), self._of(path, group))
        return unquantized.Format(self.dtype)

    def _with_activations(self, path: str, inputs: Mapping[str, Any], format: formats.Format) -> formats.Format:
        """The format of weights, with coded activations where octavo multiplies with them."""
        if not inputs or not isinstance(format, eight_bit.Format) or not int8_activations.multiplies(format):
            return format
        activation = int8_activations.of_config(path, inputs)
        return format if activation is None else int8_activations.Format(format, activation)

    def _of(self, path: str, group: Mapping[str, Any]) -> formats.Format:
        weights, name = settings.table(group, "weights"), settings.word(group, "format", self._format)
        if not weights or name == "dense":
            return unquantized.Format(self.dtype)
        extras = formats.unused(self._source, path, *_FOR_ACTIVATIONS)
        found: formats.Format | None = None
        if name == "pack-quantized":
            found = self._packed(path, weights, extras)
        elif name in ("int-quantized", "float-quantized", "naive-quantized", "mxfp8-quantized"):
            found = self._eight_bit(path, weights, name.startswith("mx"), extras)
        elif name in ("mxfp4-pack-quantized", "mxfp6-pack-quantized"):
            found = small_floats.MX(bits=6 if "fp6" in name else 4, weight_name="weight_packed", extras=extras)
        elif name == "nvfp4-pack-quantized":
            found = small_floats.NVFP4(
                weight_name="weight_packed", whole_name="weight_global_scale", whole_shape=(1,), divides=True, extras=extras
            )
        if found is not None:
            return found
        told = ", ".join(f"{key} {weights[key]!r}" for key in ("num_bits", "type", "strategy", "symmetric") if key in weights)
        raise ConfigError(f"quantization_config: {path} is in {name} ({told}), which octavo does not read", _READ)

    def _packed(self, path: str, weights: Mapping[str, Any], extras: tuple[Field, ...]) -> formats.Format | None:
        bits, strategy = settings.whole(weights, "num_bits", 8), settings.word(weights, "strategy", "")
        if not 2 <= bits <= 8 or strategy not in ("group", "channel") or weights.get("type", "int") != "int":
            return None
        is_ordered = weights.get("actorder") in ("group", True)
        if not is_ordered and self._source.number_format(f"{path}.weight_g_idx") is not None:
            raise ConfigError(f"{path} has a weight_g_idx, and quantization_config says actorder {weights.get('actorder')!r}", _READ)
        group = settings.whole(weights, "group_size") if strategy == "group" else 0
        return Packed(bits, group, self._scale(path), settings.switch(weights, "symmetric", True), is_ordered, extras)

    def _eight_bit(self, path: str, weights: Mapping[str, Any], is_mx: bool, extras: tuple[Field, ...]) -> formats.Format | None:
        kind, strategy = settings.word(weights, "type", "int"), settings.word(weights, "strategy", "tensor")
        is_symmetric = settings.switch(weights, "symmetric", True)
        if strategy not in ("tensor", "channel", "group", "block") or kind not in ("int", "float"):
            return None
        if kind == "float" and settings.whole(weights, "num_bits", 8) != 8:
            return None
        if strategy == "block" and not is_symmetric:
            return None
        rows, columns = settings.block(weights, "block_structure") or (128, 128)
        is_scalar = strategy == "tensor" and self._source.shape(f"{path}.weight_scale") == ()
        return eight_bit.Format(
            number_format="F8_E4M3" if kind == "float" else "I8",
            shared="scalar" if is_scalar else strategy,
            rows=rows if strategy == "block" else 0,
            group=columns if strategy == "block" else settings.whole(weights, "group_size") if strategy == "group" else 0,
            scale="e8m0" if is_mx else self._scale(path),
            scale_format="U8" if is_mx else None,
            zero_name=None if is_symmetric else "weight_zero_point",
            extras=extras,
        )

    def _scale(self, path: str) -> str:
        return stored_scale(self._source.number_format(f"{path}.weight_scale"), "bfloat16")

    @staticmethod
    def _read_groups(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        for name, group in settings.table(config, "config_groups").items():
            if not isinstance(group, Mapping):
                raise ConfigError(
                    f"quantization_config: group {name!r} of config_groups only names a preset", "write out its weights and targets"
                )
            if group.get("output_activations"):
                raise ConfigError(f"quantization_config: {name} has output_activations, which are not read here", _READ)
        return settings.tables(config, "config_groups")

    @staticmethod
    def _refuse_what_is_not_read(config: Mapping[str, Any]) -> None:
        """Keys that change what weights mean, or what else is quantized."""
        formats.refuse_cache(config)
        sparsity = settings.table(config, "sparsity_config")
        wrong = {
            "sparsity_config": sparsity.get("format", "dense") != "dense",
            "transform_config": bool(settings.table(config, "transform_config").get("config_groups")),
            "moe_sparsity_config": bool(config.get("moe_sparsity_config")),
            "quantization_status": config.get("quantization_status") not in (None, "compressed") and config.get("format") != "dense",
        }
        for key, is_wrong in wrong.items():
            if is_wrong:
                raise ConfigError(f"quantization_config: {key} {config[key]!r} is not read here", f"{_READ}, compressed and not sparse")
