"""Weights of whole bytes: int8 or E4M3, with scales for the tensor, for rows, for groups of columns or for blocks, under several names."""

from dataclasses import dataclass

import torch

from octavo.ops.weights import SCALES, Coded, Layout, Tensors
from octavo.quant.format import COLUMNS, ROWS, Axis, Field, Filled, MustBe
from octavo.quant.scales import scale_rows

ONE = Axis(None)
CODES = {"I8": ("int8", torch.int8), "F8_E4M3": ("float8_e4m3", torch.float8_e4m3fn)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """`weight`, in number_format, with scales called `scale_name`.

    shared: what has one scale: the tensor, of shape [] ("scalar"), [1] ("tensor") or [1, 1]; a row, [rows] ("rows") or [rows, 1]
    ("channel"); a "group" of columns; a "block" of rows and columns, or a "padded block", with an axis of one after each. rows, group: of
    those. scale, scale_format: of the scales, in memory, and on disk where they are not converted. extras: what the checkpoint has beside
    it that this does not use.
    """

    number_format: str
    shared: str
    rows: int = 0
    group: int = 0
    scale: str = "float32"
    scale_format: str | None = None
    scale_name: str = "weight_scale"
    weight_name: str = "weight"
    zero_name: str | None = None
    extras: tuple[Field, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        _, dtype = CODES[self.number_format]
        groups = Axis("columns", self.group) if self.group else ONE
        block = Axis("rows", self.rows or 1)
        axes: tuple[Axis, ...] = {
            "scalar": (),
            "tensor": (ONE,),
            "tensor of two axes": (ONE, ONE),
            "rows": (ROWS,),
            "block": (block, groups),
            "padded block": (block, ONE, groups, ONE),
        }.get(self.shared, (ROWS, groups))
        fields = [Field(self.weight_name, (ROWS, COLUMNS), dtype, self.number_format)]
        fields.append(Field(self.scale_name, axes, SCALES[self.scale], self.scale_format, must_be=self._scales_must_be))
        if self.zero_name is not None:
            fields.append(Field(self.zero_name, axes, torch.int8, "I8"))
        return (*fields, *self.extras)

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        code, _ = CODES[self.number_format]
        codes, scales = filled.tensors[self.weight_name].view(torch.uint8), filled.tensors[self.scale_name]
        if "block" in self.shared:
            layout = Coded(code=code, group=self.group, scale=self.scale, shares_scale_rows=True)
            return layout, (codes, scales.reshape(scales.shape[0], -1), scale_rows(filled, self.rows))
        if self.zero_name is None:
            return Coded(code=code, group=self.group, scale=self.scale), (codes, self._of_rows(filled, scales))
        # zeros are unsigned where kernels read them: codes and zeros are moved by half the range
        zeros = filled.tensors[self.zero_name].view(torch.uint8) ^ 128
        layout = Coded(code="uint8", group=self.group, scale=self.scale, has_zeros=True)
        return layout, (codes ^ 128, self._of_rows(filled, scales), self._of_rows(filled, zeros))

    @property
    def _scales_must_be(self) -> MustBe:
        """Where integers have groups some tools use negative scales, to have one more step on the side of the largest number."""
        if self.shared in ("scalar", "tensor", "tensor of two axes"):
            return "positive"
        return "not negative" if self.number_format == "F8_E4M3" else "finite"

    def _of_rows(self, filled: Filled, values: torch.Tensor) -> torch.Tensor:
        """Scales or zeros as [rows, groups]."""
        if self.shared in ("scalar", "tensor", "tensor of two axes"):
            return filled.per_row(values)[:, None].contiguous()
        return values[:, None] if self.shared == "rows" else values
