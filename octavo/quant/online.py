"""Online: a plain checkpoint is quantized while it is loaded, piece by piece, so that the plain weights are never there as a whole.

`--quantization fp8_per_tensor` and so on name these; the checkpoint needs nothing of its own. Activations stay in the model's format,
except where a scheme says how they are coded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from octavo.ops.linear import Activation
from octavo.ops.weights import Coded, Layout, Tensors, pack_codes
from octavo.quant import format as formats
from octavo.quant.format import COLUMNS, ROWS, Field, Filled, Role, Source
from octavo.quant.scales import scale_rows
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named

Quantize = Callable[[Filled, torch.Tensor], tuple[Layout, Tensors]]
_FP8_LARGEST = torch.finfo(torch.float8_e4m3fn).max
FP8_BLOCK = 128
INT4_GROUP = 32
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Format:
    """Plain numbers on disk; `quantize` makes codes of them."""

    dtype: torch.dtype
    quantize: Quantize
    activation: Activation | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("weight", (ROWS, COLUMNS), self.dtype),)

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        return self.quantize(filled, filled.tensors["weight"])


class Scheme(formats.Scheme):
    """Linear layers and experts; embedding, head and router stay plain. A subclass is what users type, its `quantize` what is done."""

    stores_plain = True
    quantize: Quantize
    activation: ClassVar[Activation | None] = None

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._plain = list(source.config.get("ignore") or ())

    def weight(self, path: str, role: Role) -> formats.Format:
        if role in ("embedding", "head", "router") or named(path, self._plain):
            return unquantized.Format(self.dtype)
        return Format(self.dtype, type(self).quantize, self.activation)


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


def int4_by_groups(filled: Filled, weight: torch.Tensor) -> tuple[Layout, Tensors]:
    """4 bits with a scale and a zero for each 32 numbers of a row, so that the least and the largest are kept."""
    rows, columns = weight.shape
    groups = -(-columns // INT4_GROUP)
    layout = Coded(code="uint4", group=INT4_GROUP, scale="bfloat16", has_minimums=True)
    if weight.is_meta:
        scales = torch.empty(rows, groups, dtype=torch.bfloat16, device="meta")
        return layout, (pack_codes(_like(weight, torch.uint8), 4), scales, scales.clone())
    whole = torch.nn.functional.pad(weight.float(), (0, groups * INT4_GROUP - columns), mode="replicate" if columns > 1 else "constant")
    whole = whole.view(rows, groups, INT4_GROUP)
    minimums = whole.amin(-1).to(torch.bfloat16)
    scales = _not_zero((whole.amax(-1) - minimums.float()) / 15).to(torch.bfloat16)
    codes = ((whole - minimums.float()[..., None]) / scales.float()[..., None]).round().clamp(0, 15).to(torch.uint8)
    return layout, (pack_codes(codes.view(rows, -1)[:, :columns], 4), scales, minimums)


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
