"""Blocks: who holds which, and which free one is used next."""

import pytest

from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.prefix_index import PrefixIndex


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(6, PrefixIndex(2))


def test_the_null_block_is_never_given(pool: BlockPool) -> None:
    assert pool.num_free == 5
    assert sorted(pool.allocate() for _ in range(5)) == [1, 2, 3, 4, 5]
    assert (pool.num_free, pool.usage) == (0, 1.0)
    with pytest.raises(RuntimeError, match="empty"):
        pool.allocate()


def test_blocks_never_cached_are_used_first_then_the_oldest_cached(pool: BlockPool) -> None:
    blocks = [pool.allocate() for _ in range(5)]
    for block in blocks[:3]:
        pool.cache(block, 0, b"key %d" % block)
    for block in (blocks[1], blocks[0], blocks[4], blocks[2]):
        pool.drop(block)
    assert pool.num_free == 4
    assert [pool.allocate() for _ in range(4)] == [blocks[4], blocks[1], blocks[0], blocks[2]]
    assert not pool.index.keys


def test_a_held_cached_block_is_not_evicted(pool: BlockPool) -> None:
    blocks = [pool.allocate() for _ in range(5)]
    pool.cache(blocks[0], 0, b"a")
    pool.cache(blocks[1], 1, b"a")
    pool.drop(blocks[0])
    pool.drop(blocks[1])
    assert pool.num_revivals(blocks[:2]) == 2
    pool.hold(blocks[0])
    assert pool.num_revivals(blocks[:2]) == 1
    assert pool.allocate() == blocks[1]
    assert pool.index.blocks == [{b"a": blocks[0]}, {}]
    pool.hold(blocks[0])
    pool.drop(blocks[0])
    assert pool.num_free == 0
    pool.drop(blocks[0])
    assert pool.num_free == 1
    with pytest.raises(RuntimeError, match="more often"):
        pool.drop(blocks[0])


def test_uncache_makes_a_free_block_empty(pool: BlockPool) -> None:
    first, second = pool.allocate(), pool.allocate()
    for block in (first, second):
        pool.cache(block, 0, bytes([block]))
    pool.drop(first)
    pool.uncache(first)
    pool.uncache(second)
    assert pool.allocate() == first
    assert not pool.index.keys
    assert pool.references[second] == 1


def test_a_key_has_one_block_and_a_block_one_key(pool: BlockPool) -> None:
    first, second = pool.allocate(), pool.allocate()
    assert pool.cache(first, 0, b"a")
    assert not pool.cache(second, 0, b"a")
    assert not pool.cache(first, 1, b"b")
    pool.drop(second)
    assert pool.index.keys == {first: (0, b"a")}


def test_the_cache_is_cleared_only_when_nothing_is_held(pool: BlockPool) -> None:
    block = pool.allocate()
    pool.cache(block, 0, b"a")
    assert not pool.clear_cache()
    pool.drop(block)
    assert pool.clear_cache()
    assert not pool.index.keys
    assert sorted(pool.allocate() for _ in range(5)) == [1, 2, 3, 4, 5]
