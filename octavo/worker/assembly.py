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
        self._counting = np.arange(max(max_tokens, max_rows) + 1, dtype=np.int32)
        self._singles: dict[tuple[int, int], Batch] = {}  # of single tokens, by rows and blocks of a table: always the same tensors

    def assemble(self, rows: Int32, starts: Int32, counts: Int32) -> Batch:
        """rows, starts, counts: row numbers, positions of the first tokens, tokens of each span; all checked before.

        Raises ValueError if a row would write to the null block.
        """
        n = len(rows)
        lengths = self._lengths_view[:n]
        np.add(starts, counts, out=lengths)
        max_count, max_length = int(counts.max()), int(lengths.max())
        row_starts = self._starts_view[: n + 1]
        if max_count == 1:
            total, max_length = n, longest(max_length, self._rows.max_tokens)
            row_starts[:] = self._counting[: n + 1]
        else:
            np.cumsum(counts, out=row_starts[1:])
            total = int(row_starts[n])
        owners, positions = self._spans(starts, counts, total, max_count)
        self._tokens_view[:total] = self._rows.tokens[rows if max_count == 1 else rows[owners], positions]
        size = self._rows.block_size
        width = -(-max_length // size)
        columns = positions // size
        offsets = positions - columns * size
        for group, (source, (_, table_view), (_, slot_view)) in enumerate(zip(self._rows.tables, self._tables, self._slots)):
            view = table_view[: n * width].reshape(n, width)
            np.take(source[:, :width], rows, axis=0, out=view, mode="clip")
            blocks = view[owners, columns]
            if not blocks.all():
                raise ValueError(f"a row would write to the null block of cache group {group}")
            np.multiply(blocks, size, out=slot_view[:total], dtype=np.int64)
            slot_view[:total] += offsets
        if max_count > 1:
            return self._batch(total, n, width, max_count, max_length)
        shape = n, width
        batch = self._singles.get(shape)
        if batch is None or batch.max_length != max_length:
            batch = self._singles[shape] = self._batch(total, n, width, max_count, max_length)
        batch.plans.clear()
        return batch

    def _batch(self, total: int, n: int, width: int, max_count: int, max_length: int) -> Batch:
        return Batch(
            num_tokens=total,
            num_rows=n,
            tokens=self._tokens[:total],
            positions=self._positions[:total],
            row_starts=self._starts[: n + 1],
            lengths=self._lengths[:n],
            tables=[table[: n * width].view(n, width) for table, _ in self._tables],
            slots=[slot[:total] for slot, _ in self._slots],
            max_count=max_count,
            max_length=max_length,
            block_size=self._rows.block_size,
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
