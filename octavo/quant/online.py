"""Online: a plain checkpoint is quantized while it is loaded, piece by piece, so that the plain weights are never there as a whole.

`--quantization fp8_per_tensor` and so on name these; the checkpoint needs nothing of its own. Activations stay in the model's format,
except where a scheme says how they are coded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from octavo.errors import ConfigError
from octavo.ops.linear import Activation
from octavo.ops.weights import FP4_E2M1, NF4, Coded, Layout, Tensors, pack_codes, scale_values
from octavo.quant import format as formats
from octavo.quant.format import COLUMNS, ROWS, Field, Filled, Role, Source
from octavo.quant.scales import scale_rows
from octavo.quant.schemes import unquantized
from octavo.quant.small_floats import MX_GROUP, NVFP4_GROUP
from octavo.quant.targets import named

Quantize = Callable[..., tuple[Layout, Tensors]]
_FP8_LARGEST = torch.finfo(torch.float8_e4m3fn).max
FP8_BLOCK = 128
INT4_GROUP = 32
NF4_GROUP = 64
_FP4_LARGEST = 6.0
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Format:
    """Plain numbers on disk; `quantize` makes codes of them. group: columns that share a scale, 0: as many as that has by itself."""

    dtype: torch.dtype
    quantize: Quantize
    group: int = 0
    activation: Activation | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("weight", (ROWS, COLUMNS), self.dtype, must_be="finite"),)

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        weight = filled.tensors["weight"]
        return self.quantize(filled, weight, self.group) if self.group else self.quantize(filled, weight)


class Scheme(formats.Scheme):
    """Linear layers and experts; embedding, head and router stay plain. A subclass is what users type, its `quantize` what is done.

    config (`--quantization-config`): `linear` and `moe` name another format for layers and for experts, {"weight": name}; `targets` do by
    name or pattern; what `ignore` lists stays plain; `group_size` is that of int4.
    """

    stores_plain = True
    quantize: Quantize | None = None
    activation: ClassVar[Activation | None] = None

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        config = {} if source.config.get("quant_method") else source.config
        unknown = sorted(set(config) - {"linear", "moe", "targets", "ignore", "group_size"})
        if unknown:
            raise ConfigError(f"--quantization-config has no key {unknown[0]!r}", "its keys: linear, moe, targets, ignore, group_size")
        for key, kind, wanted in (("ignore", list, "a list of names"), ("targets", dict, "a table of names and formats")):
            if not isinstance(config.get(key) or kind(), kind):
                raise ConfigError(f"--quantization-config: {key} is {config[key]!r}, not {wanted}")
        self._plain = [str(name) for name in config.get("ignore") or ()]
        self._group = config.get("group_size") or 0
        if not isinstance(self._group, int) or self._group < 0 or self._group % 8:
            raise ConfigError(f"--quantization-config: group_size {self._group!r} is not a multiple of 8", "32, 64 and 128 are usual")
        self._targets = {pattern: _by_name(str(name)) for pattern, name in (config.get("targets") or {}).items()}
        self._by_role = {"linear": _of_kind(config, "linear"), "expert": _of_kind(config, "moe")}

    def weight(self, path: str, role: Role) -> formats.Format:
        if role in ("embedding", "head", "router") or named(path, self._plain):
            return unquantized.Format(self.dtype)
        by_target = next((made for pattern, made in self._targets.items() if named(path, [pattern])), None)
        quantize = by_target or self._by_role.get(role) or type(self).quantize
        if quantize is None:
            return unquantized.Format(self.dtype)
        activation = self.activation if quantize is type(self).quantize else None
        return Format(self.dtype, quantize, self._group if quantize is int4_by_groups else 0, activation)


def _by_name(name: str) -> Quantize:
    if name not in BY_NAME:
        raise ConfigError(f"--quantization-config names {name!r}, which is not made while loading", f"known: {', '.join(BY_NAME)}")
    return BY_NAME[name]


def _of_kind(config: Mapping[str, Any], kind: str) -> Quantize | None:
    """What `linear` or `moe` says."""
    about = config.get(kind) or {}
    if not isinstance(about, Mapping):
        about = {"weight": about}
    if about.get("activation") is not None:
        raise ConfigError(
            f"--quantization-config: {kind}.activation {about['activation']!r} is not done",
            "--quantization int8 codes activations; with other formats they stay in the model's",
        )
    return None if about.get("weight") is None else _by_name(str(about["weight"]))


def fp8_per_tensor(filled: Filled, weight: torch.Tensor) -> tuple[Layout, Tensors]:
    """E4M3 with one scale for each part: its largest number becomes the largest there is."""
    parts = weight.split(list(filled.rows))
    largest = torch.stack([part.abs().amax().float() for part in parts])
    scales = filled.per_row(_not_zero(largest / _FP8_LARGEST))[:, None].contiguous()
    return Coded(code="float8_e4m3", group=0), (_fp8(weight, lambda rows: scales[rows]), scales)


def fp8_per_block(filled: Filled, weight: torch.Tensor) -> tuple[Layout, Tensors]:
    """E4M3 with a scale for each 128 x 128 numbers."""
    rows, columns = weight.shape
    groups = -(-columns // FP8_BLOCK)
    layout = Coded(code="float8_e4m3", group=FP8_BLOCK, shares_scale_rows=True)
    of_row = scale_rows(filled, FP8_BLOCK)
    num_scale_rows = sum(-(-part // FP8_BLOCK) for part in filled.rows)
    if weight.is_meta:
        return layout, (_like(weight, torch.uint8), torch.empty(num_scale_rows, groups, device="meta"), of_row)
    wide = torch.nn.functional.pad(weight.abs().float(), (0, groups * FP8_BLOCK - columns)).view(rows, groups, FP8_BLOCK).amax(-1)
    largest = torch.zeros(num_scale_rows, groups).scatter_reduce_(0, of_row.long()[:, None].expand(rows, groups), wide, "amax")
    scales = _not_zero(largest / _FP8_LARGEST)
    column = torch.arange(columns) // FP8_BLOCK
    return layout, (_fp8(weight, lambda part: scales[of_row[part].long()][:, column]), scales, of_row)


def int8_per_channel(filled: Filled, weight: torch.Tensor) -> tuple[Layout, Tensors]:
    """int8 with one scale for each row: its largest number becomes 127."""
    scales = _not_zero(weight.abs().amax(1, keepdim=True).float() / 127)
    codes = _in_runs(weight, lambda rows: (weight[rows].float() / scales[rows]).round().clamp(-127, 127).to(torch.int8).view(torch.uint8))
    return Coded(code="int8", group=0), (codes, scales)


def int4_by_groups(filled: Filled, weight: torch.Tensor, group: int = INT4_GROUP) -> tuple[Layout, Tensors]:
    """4 bits with a scale and a zero for each `group` numbers of a row, so that the least and the largest are kept."""
    rows, columns = weight.shape
    groups = -(-columns // group)
    layout = Coded(code="uint4", group=group, scale="bfloat16", has_minimums=True)
    if weight.is_meta:
        scales = torch.empty(rows, groups, dtype=torch.bfloat16, device="meta")
        return layout, (pack_codes(_like(weight, torch.uint8), 4), scales, scales.clone())
    whole = torch.nn.functional.pad(weight.float(), (0, groups * group - columns), mode="replicate" if columns > 1 else "constant")
    whole = whole.view(rows, groups, group)
    minimums = whole.amin(-1).to(torch.bfloat16)
    scales = _not_zero((whole.amax(-1) - minimums.float()) / 15).to(torch.bfloat16)
    codes = ((whole - minimums.float()[..., None]) / scales.float()[..., None]).round().clamp(0, 15).to(torch.uint8)
    return layout, (pack_codes(codes.view(rows, -1)[:, :columns], 4), scales, minimums)


def mxfp8(filled: Filled, weight: torch.Tensor) -> tuple[Layout, Tensors]:
    """E4M3 with a power of two for each 32 numbers of a row: the least that keeps the largest in range."""
    layout = Coded(code="float8_e4m3", group=MX_GROUP, scale="e8m0")
    largest = _largest(weight, MX_GROUP)
    if weight.is_meta:
        return layout, (_like(weight, torch.uint8), torch.empty(largest.shape, dtype=torch.uint8, device="meta"))
    exponents = _exponents(largest / _FP8_LARGEST)
    column = torch.arange(weight.shape[1]) // MX_GROUP
    return layout, (_fp8(weight, lambda rows: scale_values("e8m0", exponents[rows])[:, column]), exponents)


def nvfp4(filled: Filled, weight: torch.Tensor) -> tuple[Layout, Tensors]:
    """E2M1 with an E4M3 scale for each 16 numbers of a row, and one for each part, so that the largest scale is the largest E4M3."""
    layout = Coded(code="float4_e2m1", group=NVFP4_GROUP, scale="float8_e4m3", has_row_scales=True)
    largest = _largest(weight, NVFP4_GROUP)
    if weight.is_meta:
        scales = torch.empty(largest.shape, dtype=torch.float8_e4m3fn, device="meta")
        return layout, (pack_codes(_like(weight, torch.uint8), 4), scales, torch.empty(len(weight), device="meta"))
    parts = torch.stack([part.amax() for part in largest.split(list(filled.rows))])
    whole = filled.per_row(_not_zero(parts / (_FP4_LARGEST * _FP8_LARGEST)))
    scales = (largest / (_FP4_LARGEST * whole[:, None])).clamp(2.0**-9, _FP8_LARGEST).to(torch.float8_e4m3fn)
    column = torch.arange(weight.shape[1]) // NVFP4_GROUP
    codes = _in_runs(weight, lambda rows: _nearest(weight[rows].float() / (scales[rows].float() * whole[rows, None])[:, column], FP4_E2M1))
    return layout, (pack_codes(codes, 4), scales, whole)


def nf4(filled: Filled, weight: torch.Tensor) -> tuple[Layout, Tensors]:
    """NF4 with a scale of 32 bits for each 64 numbers of a row, as bitsandbytes makes it without nested scales."""
    layout = Coded(code="nf4", group=NF4_GROUP)
    scales = _largest(weight, NF4_GROUP)
    if weight.is_meta:
        return layout, (pack_codes(_like(weight, torch.uint8), 4), scales)
    column = torch.arange(weight.shape[1]) // NF4_GROUP
    codes = _in_runs(weight, lambda rows: _nearest(weight[rows].float() * (1 / _not_zero(scales))[rows][:, column], NF4))
    return layout, (pack_codes(codes, 4), scales)


def _largest(weight: torch.Tensor, group: int) -> torch.Tensor:
    """float32 [rows, groups]: the largest magnitude in each group of columns."""
    rows, columns = weight.shape
    groups = -(-columns // group)
    if weight.is_meta:
        return torch.empty(rows, groups, device="meta")
    return torch.nn.functional.pad(weight.abs().float(), (0, groups * group - columns)).view(rows, groups, group).amax(-1)


def _exponents(scales: torch.Tensor) -> torch.Tensor:
    """uint8: the powers of two at or above scales, as bytes."""
    mantissa, exponent = torch.frexp(scales)
    return (exponent - (mantissa == 0.5).int() + 127).clamp(1, 254).to(torch.uint8)


def _nearest(numbers: torch.Tensor, table: tuple[float, ...]) -> torch.Tensor:
    """uint8: the place in a table of the value nearest to each number; halfway, the one with the even place (that of an even fraction)."""
    values = torch.tensor(table).unique()
    places = torch.tensor([table.index(float(value)) for value in values])
    upper = torch.bucketize(numbers.contiguous(), values).clamp(1, len(values) - 1)
    below, above = numbers - values[upper - 1], values[upper] - numbers
    is_above = (above < below) | ((above == below) & (places[upper] % 2 == 0))
    return places[torch.where(is_above, upper, upper - 1)].to(torch.uint8)


def _fp8(weight: torch.Tensor, scales: Callable[[slice], torch.Tensor]) -> torch.Tensor:
    """The codes, uint8, of a weight divided by its scales."""

    def quantized(rows: slice) -> torch.Tensor:
        wanted = (weight[rows].float() / scales(rows)).clamp(-_FP8_LARGEST, _FP8_LARGEST)
        return wanted.to(torch.float8_e4m3fn).view(torch.uint8)

    return _in_runs(weight, quantized)


def _in_runs(weight: torch.Tensor, quantized: Callable[[slice], torch.Tensor]) -> torch.Tensor:
    """uint8 like the weight, made of some rows at a time: wide numbers of the whole would not be small."""
    codes = _like(weight, torch.uint8)
    if not weight.is_meta:
        for start in range(0, weight.shape[0], _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            codes[rows] = quantized(rows)
    return codes


def _like(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(weight.shape, dtype=dtype, device=weight.device)


def _not_zero(scales: torch.Tensor) -> torch.Tensor:
    """Scales of weights that are all zero must divide all the same."""
    return torch.where(scales > 0, scales, torch.ones_like(scales))


BY_NAME: dict[str, Quantize] = {
    "fp8_per_tensor": fp8_per_tensor,
    "fp8_per_block": fp8_per_block,
    "int8_per_channel_weight_only": int8_per_channel,
    "int4": int4_by_groups,
    "mxfp8": mxfp8,
    "nvfp4": nvfp4,
    "bitsandbytes": nf4,
}
