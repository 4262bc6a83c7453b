"""The longest chunk of one prompt in a step while others are there too (--long-prefill-token-threshold)."""

from collections.abc import Callable

from octavo.scheduler.limits.limit import Limit
from octavo.scheduler.request import Request, Start


class LongPrefill(Limit):
    def __init__(self, threshold: int, num_requests: Callable[[], int]) -> None:
        self._threshold = threshold
        self._num_requests = num_requests
        self._has_company = False

    def start_step(self) -> None:
        self._has_company = self._num_requests() > 1

    def grant(self, request: Request, start: Start, want: int) -> int:
        return self._threshold if want > self._threshold and self._has_company else want
