"""Residency: of a sample of cache blocks, how long each stays, how long it lies idle before it goes, and when it is used again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.prefix_index import PrefixIndex


@dataclass(slots=True)
class Stays:
    """Seconds; one entry for each thing that happened to a block of the sample."""

    lifetimes_s: list[float] = field(default_factory=list)  # from allocation to eviction
    idles_s: list[float] = field(default_factory=list)  # from the last use to eviction
    gaps_s: list[float] = field(default_factory=list)  # between two uses; the allocation is the first use


class WatchedPool(BlockPool):
    """A pool that looks at a share of its blocks. A block's stay begins when it is allocated and ends when its content is forgotten."""

    def __init__(self, num_blocks: int, index: PrefixIndex, sample: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(num_blocks, index)
        self._sample = sample
        self._clock = clock
        self._draw = random.Random(0).random
        self._used: dict[int, tuple[float, float]] = {}  # block -> when it was allocated, when it was last used
        self._stays = Stays()

    def take_stays(self) -> Stays:
        """What happened since the last call."""
        stays, self._stays = self._stays, Stays()
        return stays

    def allocate(self) -> int:
        is_eviction = not self._empty
        block = super().allocate()
        if is_eviction:
            self._note_eviction(block)
        if self._draw() < self._sample:
            now = self._clock()
            self._used[block] = (now, now)
        else:
            self._used.pop(block, None)
        return block

    def hold(self, block: int) -> None:
        super().hold(block)
        if (used := self._used.get(block)) is not None:
            now = self._clock()
            self._stays.gaps_s.append(now - used[1])
            self._used[block] = (used[0], now)

    def uncache(self, block: int) -> None:
        super().uncache(block)
        self._note_eviction(block)

    def clear_cache(self) -> bool:
        cached = list(self._cached)
        if not super().clear_cache():
            return False
        for block in cached:
            self._note_eviction(block)
        return True

    def _note_eviction(self, block: int) -> None:
        if (used := self._used.pop(block, None)) is not None:
            now = self._clock()
            self._stays.lifetimes_s.append(now - used[0])
            self._stays.idles_s.append(now - used[1])
