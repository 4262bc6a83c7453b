"""A grammar is compiled on a thread; its request begins when that is done."""

from octavo.scheduler.limits.limit import Limit
from octavo.scheduler.request import Request, Start


class GrammarReady(Limit):
    is_private = True

    def grant(self, request: Request, start: Start, want: int) -> int:
        return want if request.compiling is None else 0
