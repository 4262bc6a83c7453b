"""Rows: what the worker remembers of each request between steps. Columns over all rows, so that a step touches no row one by one."""

import mmap

import numpy as np
import numpy.typing as npt

from octavo.protocol.columns import Int32, unpack
from octavo.protocol.step import STORED, VALUE, GroupChange, NewRow

EMPTY = -1  # epoch of a row that nobody has
NEVER = -3  # the step of a sample that was never taken


class Rows:
    """Token buffers and block tables of up to `num_rows` requests of up to `max_tokens` tokens each.

    num_groups: cache groups, one block table each. Buffers are mapped, and become resident as they are written.
    """

    def __init__(self, num_rows: int, max_tokens: int, num_groups: int, block_size: int) -> None:
        self.max_tokens = max_tokens
        self.block_size = block_size
        # one more place than a context may have: the sample that ends it is stored too
        self.tokens = _mapped(num_rows, max_tokens + 1)
        self.known = np.zeros(num_rows, np.int32)  # tokens in the buffer
        self.computed = np.zeros(num_rows, np.int32)  # tokens whose state is in the cache
        self.epochs = np.full(num_rows, EMPTY, np.int32)
        self.sampled_steps = np.full(num_rows, NEVER, np.int32)  # the step whose sample is the last token in the buffer
        self.prompts = np.zeros(num_rows, np.int32)  # prompt tokens
        most_blocks = (max_tokens + block_size - 1) // block_size
        self.tables = [_mapped(num_rows, most_blocks) for _ in range(num_groups)]
        self.num_blocks = [np.zeros(num_rows, np.int32) for _ in range(num_groups)]

    def begin(self, new: NewRow) -> None:
        """Raises ValueError for a row that is inconsistent in itself; the row is then empty."""
        row = new.row
        if not 0 <= row < len(self.epochs):
            raise ValueError(f"row {row} is not one of the worker's {len(self.epochs)}")
        self.epochs[row] = EMPTY
        tokens = unpack(new.token_ids)
        if not 0 < len(tokens) <= self.max_tokens:
            raise ValueError(f"{len(tokens)} tokens, and a row has between 1 and {self.max_tokens}")
        if len(new.block_tables) != len(self.tables):
            raise ValueError(f"{len(new.block_tables)} block tables for {len(self.tables)} cache groups")
        for table, counts, column in zip(self.tables, self.num_blocks, new.block_tables):
            blocks = unpack(column)
            if len(blocks) > table.shape[1]:
                raise ValueError(f"{len(blocks)} blocks, and a row has at most {table.shape[1]}")
            table[row, : len(blocks)] = blocks
            counts[row] = len(blocks)
        self.tokens[row, : len(tokens)] = tokens
        self.known[row] = len(tokens)
        self.computed[row] = new.computed
        self.prompts[row] = new.num_prompt_tokens
        self.sampled_steps[row] = NEVER
        self.epochs[row] = new.epoch

    def end(self, rows: Int32) -> None:
        self.epochs[rows] = EMPTY

    def append_blocks(self, group: int, change: GroupChange, rows: Int32) -> None:
        """Put blocks at the end of tables. rows: the row numbers of the plan. Raises ValueError if a table is full."""
        takers, counts, blocks = rows[unpack(change.append_rows)], unpack(change.append_counts), unpack(change.append_blocks)
        if not len(takers):
            return
        have = self.num_blocks[group]
        if int((have[takers] + counts).max()) > self.tables[group].shape[1]:
            raise ValueError(f"more blocks than a table of group {group} has entries")
        if int(counts.max()) == 1:
            self.tables[group][takers, have[takers]] = blocks
        else:
            within = np.arange(len(blocks), dtype=np.int32) - np.repeat(np.cumsum(counts, dtype=np.int32) - counts, counts)
            self.tables[group][np.repeat(takers, counts), np.repeat(have[takers], counts) + within] = blocks
        have[takers] += counts

    def resolve(self, rows: Int32, ends: Int32, sources: Int32, values: Int32) -> npt.NDArray[np.bool_]:
        """Settle the last token of each span, drafts aside: the one at ends - 1. True where a row cannot be computed as planned.

        rows: numbers, all of them in use. ends: where the span without its drafts ends.
        """
        given = sources == VALUE
        if given.any():
            takers, places = rows[given], ends[given] - 1
            self.tokens[takers, places] = values[given]
            self.known[takers] = np.maximum(self.known[takers], places + 1)
        wrong = self.known[rows] < ends
        own = sources > STORED
        if own.any():
            wrong |= own & ((self.sampled_steps[rows] != sources) | (self.known[rows] != ends))
        return wrong

    def append_samples(self, rows: Int32, places: Int32, tokens: Int32, step: int) -> None:
        """Each row's newest token: tokens[i] stands at position places[i] of rows[i] and is its sample of `step`."""
        self.tokens[rows, places] = tokens
        self.known[rows] = places + 1
        self.sampled_steps[rows] = step


def _mapped(num_rows: int, width: int) -> Int32:
    """Zeros [rows, width] in 4 KiB pages that nothing has touched: numpy would ask for huge pages, and a short row would pay for one."""
    size = num_rows * width
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros((num_rows, width), np.int32)
    mapping = mmap.mmap(-1, size * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(mapping, np.int32, size).reshape(num_rows, width)
