"""A recurrent state can be saved only where a span ends, so a span that crosses a block's border ends at one."""

from octavo.scheduler.limits.limit import BEGINNING
from octavo.scheduler.request import Request, Start


class StateBorder:
    relieved_by_preemption = False

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size

    def start_step(self) -> None:
        pass

    def find(self, request: Request) -> Start:
        return BEGINNING

    def grant(self, request: Request, start: Start, want: int) -> int:
        end = start.position + want
        border = end // self._block_size * self._block_size
        return border - start.position if border > start.position else want

    def take(self, request: Request, start: Start, granted: int) -> None:
        pass

    def release(self, request: Request) -> None:
        pass
