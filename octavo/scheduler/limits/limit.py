"""Limit: one scarce thing. It is asked, then taken, then released; nothing is taken before all limits have answered."""

from collections.abc import Sequence
from typing import Protocol

from octavo.scheduler.request import Request, Start

BEGINNING = Start(0)


class Limit(Protocol):
    """find and grant change nothing, so there is never anything to roll back. A limit states grant, and what differs.

    relieved_by_preemption: whether a running request that gets nothing from this limit may get something when another one is preempted.
    lets_smaller_by: whether a waiting request that gets nothing from this limit may be overtaken by one that needs less. Who gets nothing
    from another limit stops the queue.
    """

    relieved_by_preemption: bool = False
    lets_smaller_by: bool = False

    def start_step(self) -> None:
        """A new plan begins."""
        return

    def find(self, request: Request) -> Start:
        """Where the waiting request could go on: BEGINNING for a limit that knows nothing of that."""
        return BEGINNING

    def grant(self, request: Request, start: Start, want: int) -> int:
        """The largest legal number of tokens, at most `want`, from `start` on; 0 for none."""
        ...

    def grant_without(self, request: Request, start: Start, want: int, preempted: Sequence[Request]) -> int:
        """What grant would say to a waiting request if these running ones were preempted first."""
        return self.grant(request, start, want)

    def take(self, request: Request, start: Start, granted: int) -> None:
        """The step computes so many tokens of the request. What was found is held before anything is allocated."""
        return

    def release(self, request: Request) -> None:
        """The request ends or is preempted. Called for those that were taken."""
        return


def settle(
    limits: Sequence[Limit], request: Request, start: Start, want: int, preempted: Sequence[Request] = ()
) -> tuple[int, Limit | None]:
    """(tokens, limit): the largest number that every limit grants; if it is 0, the limit that said so.

    preempted: running requests that would be preempted first.

    Limits are steps, not lines: one may lower what another has already agreed to, to a number that the other must lower further. So they
    are asked in turn, with the last answer as the next question, until none lowers it.
    """
    lowered = True
    while lowered:
        lowered = False
        for limit in limits:
            granted = limit.grant_without(request, start, want, preempted) if preempted else limit.grant(request, start, want)
            if granted < want:
                if granted <= 0:
                    return 0, limit
                want, lowered = granted, True
    return want, None
