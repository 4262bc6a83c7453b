"""A recurrent state can be saved only where a span ends, so a span that crosses a block's border ends at one."""

from octavo.scheduler.limits.limit import Limit
from octavo.scheduler.request import Request, Start


class StateBorder(Limit):
    def __init__(self, block_size: int) -> None:
        self._block_size = block_size

    def grant(self, request: Request, start: Start, want: int) -> int:
        end = start.position + want
        border = end // self._block_size * self._block_size
        return border - start.position if border > start.position else want
