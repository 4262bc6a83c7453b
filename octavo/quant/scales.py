"""Scales: which of them a row has, and whether they can be true."""

import torch

from octavo.errors import CheckpointError
from octavo.ops import gguf_blocks
from octavo.ops.weights import scale_values
from octavo.quant.format import Field, Filled


def scale_rows(filled: Filled, block: int) -> torch.Tensor:
    """int32 [rows]: the row of scales of each row, where every part begins a new one and `block` rows share one."""
    if next(iter(filled.tensors.values())).is_meta:
        return torch.empty(filled.num_rows, dtype=torch.int32, device="meta")
    found, start = [], 0
    for rows in filled.rows:
        found.append(torch.arange(rows, dtype=torch.int32) // block + start)
        start += -(-rows // block)
    return torch.cat(found)


def stored_scale(number_format: str | None, otherwise: str) -> str:
    """The format of scales in memory that keeps what the checkpoint has, a key of weights.SCALES."""
    return {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float32"}.get(number_format or "", otherwise)


def check_numbers(path: str, numbers: torch.Tensor, field: Field) -> None:
    """Raise CheckpointError for a stored tensor whose numbers cannot be what its field says. `path` names it."""
    if numbers.is_meta or field.must_be is None:
        return
    if field.must_be == "blocks":
        assert field.number_format is not None
        values = gguf_blocks.scales(numbers, field.number_format)
    else:
        # what torch cannot compute with are powers of two
        values = scale_values("e8m0", numbers) if numbers.dtype == torch.uint8 else numbers.float()
    hint = "the checkpoint is damaged, or was quantized wrongly"
    if not (finite := torch.isfinite(values)).all():
        raise CheckpointError(f"{path} has {float(values[~finite][0])} among its numbers, which must be finite", hint)
    if field.must_be == "positive" and not (values > 0).all():
        raise CheckpointError(f"{path} is {float(values.min()):g}, and a scale must be more than 0", hint)
    if field.must_be == "not negative" and (values < 0).any():
        raise CheckpointError(f"{path}: a scale is {float(values.min()):g}, and none may be negative", hint)
