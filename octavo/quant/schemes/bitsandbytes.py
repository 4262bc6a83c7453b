"""bitsandbytes: NF4 or FP4 in blocks of a flat tensor, whose scales may be 8 bit codes themselves, and int8 with a scale for each row.

Source: bitsandbytes' QuantState and int8 state: `weight` [n, 1] of two numbers a byte, the first in the high half; `weight.absmax`,
`weight.quant_map`; with nested scales also `weight.nested_absmax` and `weight.nested_quant_map`; and in JSON the rest.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

import torch

from octavo.errors import CheckpointError, ConfigError
from octavo.ops.weights import CODES, Coded, Layout, Tensors
from octavo.quant import format as formats
from octavo.quant import online
from octavo.quant.format import COLUMNS, ROWS, Axis, Field, Filled, Role, Source
from octavo.quant.schemes import unquantized

_TABLES = {"nf4": "nf4", "fp4": "fp4_bnb"}
_INT8_STEP = 0.007874015718698502  # 1 / 127 as bitsandbytes rounds it


@dataclass(frozen=True, slots=True)
class FourBit:
    """block: numbers that share a scale. state_bytes: of the JSON. nested: whether scales are codes, in blocks of 256."""

    kind: str
    block: int
    state_bytes: int
    is_nested: bool

    @property
    def fields(self) -> tuple[Field, ...]:
        blocks = Axis("columns", self.block)
        fields = [
            Field("weight", (ROWS, Axis("columns", 2)), torch.uint8, "U8", is_flat=True),
            Field("weight.quant_map", (Axis(None, size=16),), torch.float32),
            Field(f"weight.quant_state.bitsandbytes__{self.kind}", (Axis(None, size=self.state_bytes),), torch.uint8, "U8"),
        ]
        if not self.is_nested:
            return (*fields, Field("weight.absmax", (ROWS, blocks), torch.float32, is_flat=True, must_be="not negative"))
        return (
            *fields,
            Field("weight.absmax", (ROWS, blocks), torch.uint8, "U8", is_flat=True),
            Field("weight.nested_absmax", (Axis("all numbers", self.block * _NESTED_BLOCK),), torch.float32, must_be="not negative"),
            Field("weight.nested_quant_map", (Axis(None, size=256),), torch.float32, must_be="finite"),
        )

    @property
    def can_join(self) -> bool:
        return False  # each part's scales are coded in a run of their own

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        tensors = filled.tensors
        code = _TABLES[self.kind]
        self._check_table(filled.path, tensors["weight.quant_map"][0], CODES[code][1])
        raw, scales = tensors["weight"], tensors["weight.absmax"]
        codes = (raw >> 4) | (raw << 4)
        if not self.is_nested:
            return Coded(code=code, group=self.block), (codes, scales)
        outer, table = tensors["weight.nested_absmax"][0], tensors["weight.nested_quant_map"][0]
        state = self._state(filled)
        ((row, column, all_columns),) = filled.starts
        starts = torch.arange(row, row + filled.num_rows, dtype=torch.int32, device=raw.device) * (all_columns // self.block)
        shift = torch.tensor([float(state["nested_offset"])], device=raw.device)
        layout = Coded(code=code, group=self.block, scale="nested", nested=_NESTED_BLOCK)
        return layout, (codes, scales, table, outer, starts + column // self.block, shift)

    def _state(self, filled: Filled) -> dict[str, Any]:
        raw = filled.tensors[f"weight.quant_state.bitsandbytes__{self.kind}"][0]
        if raw.is_meta:
            return {"nested_offset": 0.0}
        try:
            state = json.loads(bytes(raw.tolist()))
            is_known = state["quant_type"] == self.kind and state["blocksize"] == self.block and state["nested_blocksize"] == _NESTED_BLOCK
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CheckpointError(f"{filled.path}.weight.quant_state is no state of bitsandbytes", "the checkpoint is damaged") from None
        offset = state.get("nested_offset")
        if is_known and not (isinstance(offset, float | int) and math.isfinite(offset)):
            raise CheckpointError(f"{filled.path}.weight.quant_state: nested_offset is {offset!r}, not a finite number")
        if not is_known:
            raise CheckpointError(f"{filled.path}.weight.quant_state and its tensors do not belong together: {state}")
        return dict(state)

    @staticmethod
    def _check_table(path: str, found: torch.Tensor, known: Any) -> None:
        if not found.is_meta and not torch.allclose(found, torch.tensor(known), rtol=0, atol=1e-7):
            raise CheckpointError(f"{path}.weight.quant_map is not the table of its kind", "octavo reads bitsandbytes' nf4 and fp4")


_NESTED_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Int8:
    """number = code * SCB / 127."""

    extras: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return (
            Field("weight", (ROWS, COLUMNS), torch.int8, "I8"),
            Field("SCB", (ROWS,), torch.float32, must_be="not negative"),
            *self.extras,
        )

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        scales = filled.tensors["SCB"]
        layout = Coded(code="int8", group=0, has_row_scales=True)
        return layout, (filled.tensors["weight"].view(torch.uint8), scales[:, None], torch.full_like(scales, _INT8_STEP))


class Scheme(online.Scheme):
    """A plain checkpoint is made NF4 in blocks of 64, with scales of 32 bits."""

    quantize = staticmethod(online.nf4)

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._is_stored = source.config.get("quant_method") == "bitsandbytes"
        self._source = source

    def weight(self, path: str, role: Role) -> formats.Format:
        if not self._is_stored:
            return super().weight(path, role)
        number_format = self._source.number_format(f"{path}.weight")
        if number_format == "U8":
            return self._four_bit(path)
        if number_format == "I8":
            return Int8(formats.unused(self._source, path, "weight_format"))
        # which layers are plain the headers tell: llm_int8_skip_modules does not name all (the head, and what a model keeps in float32)
        return unquantized.Format(self.dtype)

    def _four_bit(self, path: str) -> formats.Format:
        kind = next((kind for kind in _TABLES if self._source.shape(f"{path}.weight.quant_state.bitsandbytes__{kind}") is not None), None)
        state, absmax, numbers = (
            self._source.shape(f"{path}.{name}") for name in (f"weight.quant_state.bitsandbytes__{kind}", "weight.absmax", "weight")
        )
        if kind is None or state is None or absmax is None or numbers is None:
            missing = f"{path}.weight.quant_state.bitsandbytes__nf4 or {path}.weight.absmax is missing"
            raise CheckpointError(missing, "the files are not whole: fetch the model again")
        count = 2 * math.prod(numbers)
        blocks = absmax[0]
        block = next((size for size in (32, 64, 128, 256, 512, 1024, 2048, 4096) if -(-count // size) == blocks), None)
        if block is None:
            raise ConfigError(f"{path}.weight.absmax has {blocks} blocks of {count} numbers", "octavo reads blocks of 32 to 4096")
        return FourBit(kind, block, state[0], self._source.number_format(f"{path}.weight.absmax") == "U8")
