"""Log-probability columns, cut into the parts that each request gets."""

from collections.abc import Iterator

import numpy as np

from octavo.protocol.columns import pack, pack_floats, unpack, unpack_floats
from octavo.protocol.step import LogprobColumns, PromptLogprobChunk, StepResult


def cut(columns: LogprobColumns, first: int, last: int) -> LogprobColumns:
    """The positions first .. last-1 of the columns."""
    counts = unpack(columns.counts)
    entries = np.concatenate(([0], np.cumsum(counts)))
    low, high = int(entries[first]), int(entries[last])
    return LogprobColumns(
        counts=pack(counts[first:last]),
        ids=pack(unpack(columns.ids)[low:high]),
        values=pack_floats(unpack_floats(columns.values)[low:high]),
        ranks=pack(unpack(columns.ranks)[first:last]),
    )


class StepLogprobs:
    """Where each row's positions stand in a result's log-probabilities; they follow each other."""

    def __init__(self, result: StepResult) -> None:
        self._columns = result.logprobs
        rows = unpack(result.logprob_rows) if result.logprobs is not None else ()
        self._spans: dict[int, tuple[int, int]] = {}
        for position, row in enumerate(rows):
            first, _ = self._spans.get(int(row), (position, position))
            self._spans[int(row)] = (first, position + 1)

    def of(self, index: int, num_tokens: int) -> LogprobColumns | None:
        """Those of the first num_tokens positions of row `index`; None if it has none."""
        if self._columns is None or index not in self._spans:
            return None
        first, last = self._spans[index]
        return cut(self._columns, first, min(last, first + num_tokens))


def untold(chunk: PromptLogprobChunk, told: int) -> Iterator[tuple[int, LogprobColumns]]:
    """The part of a chunk at position `told` and after it: a prompt computed again after a preemption says some things twice."""
    num_positions = len(chunk.logprobs.counts) // 4
    skipped = max(0, told - chunk.position)
    if skipped < num_positions:
        yield chunk.position + skipped, cut(chunk.logprobs, skipped, num_positions) if skipped else chunk.logprobs
