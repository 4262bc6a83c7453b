"""Prefill only in one step of so many, while somebody is decoding (--prefill-schedule-interval)."""

from octavo.scheduler.limits.limit import Limit
from octavo.scheduler.request import Request, Start


class PrefillInterval(Limit):
    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._step = -1
        self._decoding: set[str] = set()

    def start_step(self) -> None:
        self._step = (self._step + 1) % self._interval

    def grant(self, request: Request, start: Start, want: int) -> int:
        if self._step == 0 or not self._decoding or not request.is_prefilling(start.position):
            return want
        return 0

    def take(self, request: Request, start: Start, granted: int) -> None:
        if start.position + granted >= request.known:
            self._decoding.add(request.id)

    def release(self, request: Request) -> None:
        self._decoding.discard(request.id)
