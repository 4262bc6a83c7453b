"""Residency: the stays of sampled blocks, told once each."""

from octavo.kvcache.prefix_index import PrefixIndex
from octavo.kvcache.residency import Stays, WatchedPool


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make(sample: float = 1.0, num_blocks: int = 3) -> tuple[WatchedPool, Clock]:
    clock = Clock()
    return WatchedPool(num_blocks, PrefixIndex(1), sample, clock), clock


def cached(pool: WatchedPool, key: bytes) -> int:
    """A block that holds the prefix `key`, and that nobody holds any more."""
    block = pool.allocate()
    pool.cache(block, 0, key)
    pool.drop(block)
    return block


def test_lifetime_idle_time_and_gaps_of_a_block() -> None:
    pool, clock = make(num_blocks=2)
    block = cached(pool, b"a")
    for moment in (3.0, 7.0):
        clock.now = moment
        pool.hold(block)
        pool.drop(block)
    clock.now = 12.0
    assert pool.allocate() == block  # its content is forgotten
    assert pool.take_stays() == Stays([12.0], [5.0], [3.0, 4.0])
    assert pool.take_stays() == Stays()


def test_a_block_that_was_never_found_again_has_no_eviction() -> None:
    pool, clock = make()
    pool.drop(pool.allocate())
    clock.now = 5.0
    pool.drop(pool.allocate())
    assert pool.take_stays() == Stays()


def test_forgetting_the_cache_ends_all_stays() -> None:
    pool, clock = make()
    cached(pool, b"a")
    second = cached(pool, b"b")
    clock.now = 2.0
    pool.uncache(second)
    clock.now = 4.0
    assert pool.clear_cache()
    assert pool.take_stays() == Stays([2.0, 4.0], [2.0, 4.0], [])


def test_only_the_sample_is_looked_at() -> None:
    pool, _ = make(0.25, 2001)
    blocks = [cached(pool, str(k).encode()) for k in range(2000)]
    for block in blocks:
        pool.hold(block)
    assert 400 < len(pool.take_stays().gaps_s) < 600
