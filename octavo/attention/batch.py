"""Batch: one step's rows as one flat run of tokens, and where each token's state lies. Prefill and decode look the same here."""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True)
class Batch:
    """Everything a forward reads. Integer tensors live in fixed buffers of the worker; a step uses a prefix of each.

    Row r owns flat tokens row_starts[r] .. row_starts[r+1]; after the step its context has lengths[r] tokens, of which these are the last.
    """

    num_tokens: int
    num_rows: int
    tokens: torch.Tensor  # int32 [tokens]
    positions: torch.Tensor  # int32 [tokens]
    row_starts: torch.Tensor  # int32 [rows + 1]
    lengths: torch.Tensor  # int32 [rows]
    tables: list[torch.Tensor]  # a group: int32 [rows, most blocks of a row], contiguous rows
    slots: list[torch.Tensor]  # a group: int64 [tokens], block * block_size + offset of the token's own entry
    max_count: int  # most tokens of one row
    max_length: int
    block_size: int
    plans: dict[int, Any] = field(default_factory=dict)  # a group: what its attention back end worked out for this step
