"""The longest chunk of one prompt in a step while others are there too (--long-prefill-token-threshold)."""

from collections.abc import Callable

from octavo.scheduler.limits.limit import Limit
from octavo.scheduler.request import Request, Start


class LongPrefill(Limit):
    def __init__(self, threshold: int, num_requests: Callable[[], int], fair_share_of: int = 0) -> None:
        """fair_share_of: tokens of a step whose equal share is granted where it is larger than the threshold; 0 = none."""
        self._threshold = threshold
        self._num_requests = num_requests
        self._fair_share_of = fair_share_of
        self._most = threshold
        self._has_company = False

    def start_step(self) -> None:
        count = self._num_requests()
        self._has_company = count > 1
        self._most = max(self._threshold, self._fair_share_of // max(count, 1))

    def grant(self, request: Request, start: Start, want: int) -> int:
        return self._most if want > self._most and self._has_company else want
