"""Scales: which of them a row has, and whether they can be true."""

import torch

from octavo.errors import CheckpointError
from octavo.ops.weights import scale_values
from octavo.quant.format import Filled


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


def check_scales(path: str, scales: torch.Tensor, scale: str | None = None) -> None:
    """Raise CheckpointError for scales that are not finite numbers. scale: their format where torch does not know it."""
    if scales.is_meta:
        return
    if not torch.isfinite(scales.float() if scale is None else scale_values(scale, scales)).all():
        raise CheckpointError(f"{path}: a scale is not a finite number", "the checkpoint is damaged, or was quantized wrongly")
