"""Unquantized: weights are plain numbers on disk, kept in the model's own number format."""

from dataclasses import dataclass

import torch

from octavo.ops.weights import Dense, Layout, Tensors
from octavo.quant import format as formats
from octavo.quant.format import COLUMNS, ROWS, Field, Filled, Role


@dataclass(frozen=True, slots=True)
class Format:
    """Any plain floating-point format, converted to `dtype`."""

    dtype: torch.dtype

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("weight", (ROWS, COLUMNS), self.dtype),)

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        return Dense(self.dtype), (filled.tensors["weight"],)


class Scheme(formats.Scheme):
    stores_plain = True

    def weight(self, path: str, role: Role) -> Format:
        return Format(self.dtype)
