"""The worker's rows: one a running request, named by number and epoch (--max-num-seqs)."""

from collections.abc import Sequence

from octavo.scheduler.limits.limit import Limit
from octavo.scheduler.request import WAITING, Request, Start

EPOCHS = 1 << 30  # then they begin again: a result is never that old


class Rows(Limit):
    relieved_by_preemption = False  # who is running has a row

    def __init__(self, max_num_seqs: int) -> None:
        self._free = list(range(max_num_seqs - 1, -1, -1))
        self._epoch = 0

    def grant(self, request: Request, start: Start, want: int) -> int:
        return want if request.row != WAITING or self._free else 0

    def grant_without(self, request: Request, start: Start, want: int, preempted: Sequence[Request]) -> int:
        return want if preempted else self.grant(request, start, want)

    def take(self, request: Request, start: Start, granted: int) -> None:
        if request.row == WAITING:
            request.row = self._free.pop()
            request.epoch = self.next_epoch()

    def release(self, request: Request) -> None:
        self._free.append(request.row)

    def next_epoch(self) -> int:
        """Never the same twice, in whichever row: what arrives for an earlier request cannot be taken for this one's."""
        self._epoch = (self._epoch + 1) % EPOCHS
        return self._epoch
