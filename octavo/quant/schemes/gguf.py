"""GGUF: each tensor of the file in the format that its header names, kept as the blocks that it is on disk."""

from dataclasses import dataclass

import torch

from octavo.checkpoint.gguf import TYPES
from octavo.errors import CheckpointError
from octavo.ops import gguf_blocks
from octavo.ops.weights import Blocks, Layout, Tensors
from octavo.quant import format as formats
from octavo.quant.format import ROWS, Axis, Field, Filled, Role, Source
from octavo.quant.schemes import unquantized

_BLOCKS = {name for name, elements, _ in TYPES.values() if elements > 1}


@dataclass(frozen=True, slots=True)
class Format:
    """Rows of blocks of one number format."""

    number_format: str

    @property
    def fields(self) -> tuple[Field, ...]:
        elements, size_bytes = gguf_blocks.SIZES[self.number_format]
        return (Field("weight", (ROWS, Axis("columns", elements, size_bytes)), torch.uint8, self.number_format, must_be="blocks"),)

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        return Blocks(self.number_format), (filled.tensors["weight"],)


class Scheme(formats.Scheme):
    """Part by part: one file mixes formats, inside a fused layer too."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._number_format = source.number_format

    def weight(self, path: str, role: Role) -> formats.Format:
        number_format = self._number_format(f"{path}.weight")
        if number_format in _BLOCKS and number_format not in gguf_blocks.FORMATS:
            known = ", ".join(gguf_blocks.FORMATS)
            raise CheckpointError(f"{path}.weight is in {number_format}, which is not read here", f"octavo reads {known} of GGUF")
        if number_format in _BLOCKS and role != "router":
            return Format(number_format)
        return unquantized.Format(self.dtype)
