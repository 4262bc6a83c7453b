"""torchao: checkpoints of int8, int4 or E4M3 weights that transformers wrote as safetensors, one tensor for each part of torchao's objects.

Source: torchao's safetensors support: the object `q_proj.weight` is `q_proj._weight_qdata`, `q_proj._weight_scale` and so on. Those saved
with torch.save hold pickled objects, which octavo never reads; layouts that are made for one kernel of a GPU are refused by name.
"""

from dataclasses import dataclass

import torch

from octavo.errors import CheckpointError, ConfigError
from octavo.ops.weights import SCALES, Coded, Layout, Tensors
from octavo.quant import eight_bit
from octavo.quant import format as formats
from octavo.quant.format import ROWS, Axis, Field, Filled, Role, Source
from octavo.quant.scales import stored_scale
from octavo.quant.schemes import unquantized

_READ = "octavo reads torchao's Int8Tensor, IntxUnpackedToInt8Tensor, Float8Tensor and Int4Tensor from safetensors files"
_DATA, _SCALE, _ZERO = "_weight_qdata", "_weight_scale", "_weight_zero_point"


@dataclass(frozen=True, slots=True)
class Int4:
    """Two's complement, two to a byte, the first in the low half; number = code * scale + zero, both [groups, rows] in `scale`."""

    group: int
    scale: str
    data_format: str
    extras: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        groups, dtype = Axis("columns", self.group), SCALES[self.scale]
        data = Field(_DATA, (ROWS, Axis("columns", 2)), torch.int8 if self.data_format == "I8" else torch.uint8, self.data_format)
        scale, zero = (Field(name, (groups, ROWS), dtype, must_be="finite") for name in (_SCALE, _ZERO))
        return data, scale, zero, *self.extras

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        scales, zeros = (filled.tensors[name].t().contiguous() for name in (_SCALE, _ZERO))
        # -8 to 7 as 0 to 15, less 8
        codes = filled.tensors[_DATA].view(torch.uint8) ^ 0x88
        return Coded(code="int4_offset", group=self.group, scale=self.scale, has_minimums=True), (codes, scales, zeros)


class Scheme(formats.Scheme):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._source = source

    def weight(self, path: str, role: Role) -> formats.Format:
        data, scale = (self._source.number_format(f"{path}.{name}") for name in (_DATA, _SCALE))
        if data is None:
            return unquantized.Format(self.dtype)
        shape = self._source.shape(f"{path}.{_SCALE}")
        columns = self._source.shape(f"{path}.{_DATA}")
        has_joined = self._source.number_format(f"{path}._weight_scale_and_zero") is not None
        if has_joined or data not in ("I8", "U8", "F8_E4M3"):
            kept = "scale_and_zero" if has_joined else f"qdata in {data}"
            raise ConfigError(f"{path} is in a layout of torchao for one kernel of a GPU ({kept})", _READ)
        if scale is None or shape is None or columns is None or len(columns) != 2:
            raise CheckpointError(f"{path}.{_SCALE} is missing, or {_DATA} is no matrix", "the files are not whole: fetch the model again")
        if self._source.number_format(f"{path}._weight_act_pre_scale") is not None:
            raise ConfigError(f"{path} has an act_pre_scale (AWQ, SmoothQuant), which is not read here", _READ)
        extras = formats.unused(self._source, path, "_weight_act_quant_scale", "_weight_act_quant_zero_point")
        zero, kept_as = self._source.shape(f"{path}.{_ZERO}"), stored_scale(scale, "bfloat16")
        if zero is not None and shape == zero and shape[-1:] == columns[:1] and len(shape) == 2 and shape != (columns[0], 1):
            return Int4(columns[1] * 2 // shape[0], kept_as, data, extras)
        return self._bytes(path, data, shape, columns, kept_as, extras)

    def _bytes(
        self, path: str, data: str, scale: tuple[int, ...], codes: tuple[int, ...], kept_as: str, extras: tuple[Field, ...]
    ) -> formats.Format:
        """Whole bytes: scales [rows, groups], or [1, 1] for the tensor."""
        zero = self._source.number_format(f"{path}.{_ZERO}")
        if data == "U8" or zero not in (None, "I8"):
            raise ConfigError(f"{path} has qdata in {data} with zeros in {zero}, a layout of torchao that is not read here", _READ)
        groups = scale[1] if len(scale) == 2 else 1
        by_rows = ("channel" if groups == 1 else "group") if len(scale) == 2 and scale[0] == codes[0] else None
        shared = by_rows or {(): "scalar", (1,): "tensor", (1, 1): "tensor", (codes[0],): "rows"}.get(scale)
        if shared is None:
            raise ConfigError(f"{path}: scales {list(scale)} of a weight {list(codes)} are not read here", _READ)
        return eight_bit.Format(
            number_format=data,
            shared="tensor of two axes" if scale == (1, 1) and shared == "tensor" else shared,
            group=codes[1] // groups if shared == "group" else 0,
            scale=kept_as,
            scale_name=_SCALE,
            weight_name=_DATA,
            zero_name=None if zero is None else _ZERO,
            extras=extras,
        )
