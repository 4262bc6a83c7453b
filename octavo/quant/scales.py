"""Scales: which of them a row has, and whether they can be true."""

import torch

from octavo.errors import CheckpointError
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


def check_scales(path: str, scales: torch.Tensor) -> None:
    """Raise CheckpointError for scales that are not finite numbers."""
    if not scales.is_meta and not torch.isfinite(scales.float()).all():
        raise CheckpointError(f"{path}: a scale is not a finite number", "the checkpoint is damaged, or was quantized wrongly")
