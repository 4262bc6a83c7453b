"""The blocks of the cache: what a request needs in every group, out of one pool."""

from collections.abc import Sequence

from octavo.kvcache.cache import Cache
from octavo.scheduler.limits.limit import BEGINNING, Limit
from octavo.scheduler.request import WAITING, Request, Start


class CacheBlocks(Limit):
    """A running request gets what there is. A waiting one must leave the watermark free, and with `reserve_full_prompt` all its tokens must
    fit now, so that it is not admitted only to be preempted."""

    relieved_by_preemption = True
    lets_smaller_by = True

    def __init__(self, cache: Cache, reserve_full_prompt: bool, watermark: float, is_chunked: bool) -> None:
        self._cache = cache
        self._reserve = reserve_full_prompt
        self._watermark = int(watermark * cache.pool.num_blocks)
        self._is_chunked = is_chunked
        self._holders = 0

    def find(self, request: Request) -> Start:
        if not request.reads_prefix_cache:
            return BEGINNING
        hit = self._cache.find(request.tables, request.tokens)
        return BEGINNING if hit is None else Start(hit.columns * self._cache.block_size, hit)

    def grant(self, request: Request, start: Start, want: int) -> int:
        if start.position + want <= request.tables.capacity:
            return want
        return self._grant(request, start, want, self._cache.room(start.hit), self._holders)

    def grant_without(self, request: Request, start: Start, want: int, preempted: Sequence[Request]) -> int:
        room = self._cache.room(start.hit) + self._cache.freed_by([other.tables for other in preempted], start.hit)
        return self._grant(request, start, want, room, self._holders - len(preempted))

    def _grant(self, request: Request, start: Start, want: int, room: int, holders: int) -> int:
        if request.row == WAITING:
            if holders:  # one that is alone need not leave room for anybody
                room -= self._watermark
            if self._reserve and self._cache.missing(start.hit, request.known, least_at_once(request, self._is_chunked)) > room:
                return 0
        return max(0, min(want, self._cache.reach(request.tables, start.hit, room) - start.position))

    def take(self, request: Request, start: Start, granted: int) -> None:
        if not request.tables.is_begun:
            self._holders += 1
        self._cache.take(request.tables, start.hit, start.position + granted)

    def release(self, request: Request) -> None:
        self._holders -= 1
        self._cache.release(request.tables)


def least_at_once(request: Request, is_chunked: bool) -> int:
    """The fewest tokens that must be computed in one step: chunks adapt to the room, a prompt in one piece does not."""
    return 1 if is_chunked else request.num_prompt
