"""The tokens that one step computes, over all requests (--max-num-batched-tokens)."""

from octavo.scheduler.limits.limit import Limit
from octavo.scheduler.request import Request, Start


class TokenBudget(Limit):
    relieved_by_preemption = False  # what the preempted one would have taken is not spent, but it comes last anyway

    def __init__(self, max_num_batched_tokens: int) -> None:
        self._most = max_num_batched_tokens
        self._left = 0

    def start_step(self) -> None:
        self._left = self._most

    def grant(self, request: Request, start: Start, want: int) -> int:
        return want if want <= self._left else self._left

    def take(self, request: Request, start: Start, granted: int) -> None:
        self._left -= granted
