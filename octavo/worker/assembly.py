"""Assembly: the rows of a step, laid end to end in buffers that never move. numpy over all rows at once."""

import numpy as np
import torch

from octavo.attention.batch import Batch
from octavo.protocol.columns import Int32
from octavo.worker.rows import Rows
from octavo.worker.tapes import longest


class Assembly:
    """The buffers of Batch, for steps of up to `max_tokens` tokens and `max_rows` rows."""

    def __init__(self, rows: Rows, max_tokens: int, max_rows: int) -> None:
        self._rows = rows
        self._tokens, self._tokens_view = _pair(max_tokens, torch.int32)
        self._positions, self._positions_view = _pair(max_tokens, torch.int32)
        self._starts, self._starts_view = _pair(max_rows + 1, torch.int32)
        self._lengths, self._lengths_view = _pair(max_rows, torch.int32)
        self._tables = [_pair(max_rows * table.shape[1], torch.int32) for table in rows.tables]
        self._slots = [_pair(max_tokens, torch.int64) for _ in rows.tables]
        self._counting = np.arange(max_tokens, dtype=np.int32)

    def assemble(self, rows: Int32, starts: Int32, counts: Int32) -> Batch:
        """rows, starts, counts: row numbers, positions of the first tokens, tokens of each span; all checked before."""
        n = len(rows)
        row_starts = self._starts_view[: n + 1]
        np.cumsum(counts, out=row_starts[1:])
        total = int(row_starts[n])
        lengths = self._lengths_view[:n]
        np.add(starts, counts, out=lengths)
        max_count, max_length = int(counts.max()), int(lengths.max())
        if max_count == 1:
            max_length = longest(max_length, self._rows.max_tokens)
        owners, positions = self._spans(starts, counts, total, max_count)
        self._tokens_view[:total] = self._rows.tokens[rows[owners], positions]
        size = self._rows.block_size
        columns, offsets = np.divmod(positions, size)
        width = (max_length + size - 1) // size
        tables, slots = [], []
        for source, (table, table_view), (slot, slot_view) in zip(self._rows.tables, self._tables, self._slots):
            view = table_view[: n * width].reshape(n, width)
            np.take(source[:, :width], rows, axis=0, out=view, mode="clip")
            np.multiply(view[owners, columns], size, out=slot_view[:total], dtype=np.int64)
            slot_view[:total] += offsets
            tables.append(table[: n * width].view(n, width))
            slots.append(slot[:total])
        return Batch(
            num_tokens=total,
            num_rows=n,
            tokens=self._tokens[:total],
            positions=self._positions[:total],
            row_starts=self._starts[: n + 1],
            lengths=self._lengths[:n],
            tables=tables,
            slots=slots,
            max_count=max_count,
            max_length=max_length,
            block_size=size,
        )

    def _spans(self, starts: Int32, counts: Int32, total: int, max_count: int) -> tuple[Int32, Int32]:
        """Of each flat token its row's index in the step, and its position."""
        positions = self._positions_view[:total]
        if max_count == 1:
            positions[:] = starts
            return self._counting[:total], positions
        owners = np.repeat(self._counting[: len(counts)], counts)
        np.subtract(self._counting[:total], np.repeat(self._starts_view[: len(counts)] - starts, counts), out=positions)
        return owners, positions


def _pair(size: int, dtype: torch.dtype) -> tuple[torch.Tensor, "np.ndarray"]:
    """A tensor and numpy's view of the same memory."""
    tensor = torch.zeros(size, dtype=dtype)
    return tensor, tensor.numpy()
