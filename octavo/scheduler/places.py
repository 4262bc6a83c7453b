"""Places: whether a waiting request can begin in this step, from where, and who must stand back for it. Nothing here changes anything."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.scheduler.limits.limit import BEGINNING, Limit, settle
from octavo.scheduler.request import Request, Start


class Place(NamedTuple):
    """Begin at `start` with so many tokens, once the victims are preempted. granted is 0 for a request that needs more than can be had."""

    start: Start
    granted: int
    victims: Sequence[Request] = ()


def find_place(limits: Sequence[Limit], request: Request, lower: Sequence[Request]) -> Place | None:
    """The place with the fewest victims, which are the last of `lower`; None if nobody can begin, however small.

    lower: the running requests that this step has not visited and that are of lower priority, in their order.
    """
    # looking for a prefix costs with its length, so first see whether anything at all can be had
    if any(not limit.lets_smaller_by and limit.grant_without(request, BEGINNING, request.known, lower) <= 0 for limit in limits):
        return None
    start = max((limit.find(request) for limit in limits), key=_position)
    want = request.known - start.position
    granted, _ = settle(limits, request, start, want)
    if granted or not lower:
        return Place(start, granted)
    granted, _ = settle(limits, request, start, want, lower)
    if not granted:
        return Place(start, 0)
    too_few, enough = 0, len(lower)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if settle(limits, request, start, want, lower[-middle:])[0]:
            enough = middle
        else:
            too_few = middle
    return Place(start, granted, lower[-enough:])


def _position(start: Start) -> int:
    return start.position
