"""The cache over several groups: what counts as a hit, what is held, and when it is let go."""

from array import array

import pytest

from octavo.kvcache.cache import Cache
from octavo.kvcache.hashing import BlockHasher
from octavo.kvcache.plan import plan_cache
from octavo.kvcache.specs import LayerState, StateSpec
from octavo.kvcache.tables import Tables

FULL = StateSpec(kind="full", bytes_per_token=1)
SLIDING = StateSpec(kind="sliding", bytes_per_token=1, window=6)
RECURRENT = StateSpec(kind="recurrent", bytes_per_sequence=4)
TOKENS = array("i", range(100, 130))


def make(*specs: StateSpec, num_blocks: int = 40) -> Cache:
    plan = plan_cache([LayerState(str(i), spec) for i, spec in enumerate(specs)], 4, 0, num_blocks_override=num_blocks)
    return Cache(plan, BlockHasher("sha256", "test"))


def compute(cache: Cache, tokens: "array[int]", salt: str | None = None, step: int = 1) -> Tables:
    """Hold, write and confirm all of the tokens in one step."""
    tables = cache.tables(salt)
    cache.take(tables, cache.find(tables, tokens), len(tokens))
    cache.close_plan()
    cache.believe(cache.write(tables, tokens, len(tokens), step), step)
    cache.confirm(tables, tokens, len(tokens))
    return tables


def hit_columns(cache: Cache, tokens: "array[int]", salt: str | None = None) -> int:
    hit = cache.find(cache.tables(salt), tokens)
    return 0 if hit is None else hit.columns


@pytest.mark.parametrize("specs", [(FULL,), (SLIDING,), (FULL, SLIDING), (FULL, SLIDING, RECURRENT)])
def test_a_hit_is_of_full_blocks_and_never_of_the_last_token(specs: tuple[StateSpec, ...]) -> None:
    cache = make(*specs)
    compute(cache, TOKENS[:8])
    for length, columns in ((4, 0), (5, 1), (8, 1), (9, 2), (30, 2)):
        if RECURRENT in specs and columns == 1:
            columns = 0  # its only snapshot is at the end of the step
        assert hit_columns(cache, TOKENS[:length]) == columns
    assert hit_columns(cache, array("i", [1, *TOKENS[1:30]])) == 0
    assert hit_columns(cache, TOKENS[:9], salt="other") == 0


def test_a_full_group_needs_every_block_and_a_sliding_one_the_last_window() -> None:
    cache = make(FULL, SLIDING)
    cache.release(compute(cache, TOKENS[:24]))
    hit = cache.find(cache.tables(), TOKENS)
    assert hit is not None
    assert hit.columns == 6
    assert [block > 0 for block in hit.blocks[0]] == [True] * 6
    assert [block > 0 for block in hit.blocks[1]] == [False] * 4 + [True] * 2  # 5 tokens before position 24
    assert hit.revivals == 8
    # the block before the last of the sliding group goes: the longest prefix is then the one that ends before it, with its own window
    cache.pool.uncache(hit.blocks[1][4])
    assert hit_columns(cache, TOKENS) == 4
    # an early block of the full group goes: nothing after it can be used
    cache.pool.uncache(hit.blocks[0][1])
    assert hit_columns(cache, TOKENS) == 1


def test_groups_agree_on_the_longest_prefix() -> None:
    cache = make(FULL, SLIDING)
    held = compute(cache, TOKENS[:24])
    cache.pool.uncache(held.blocks[0][5])
    hit = cache.find(cache.tables(), TOKENS)
    assert hit is not None
    assert hit.columns == 5
    assert [block > 0 for block in hit.blocks[1]] == [False] * 3 + [True] * 2


def test_recurrent_state_is_restored_from_a_snapshot() -> None:
    cache = make(FULL, RECURRENT)
    first = cache.tables()
    cache.take(first, None, 8)
    assert [group for group, _ in first.zeroings] == [1]
    assert len(first.saves) == 1
    assert first.snapshots == [(8, 1, first.saves[0][1])]
    cache.write(first, TOKENS[:8], 8, 1)
    assert hit_columns(cache, TOKENS) == 0  # the snapshot is not confirmed
    cache.confirm(first, TOKENS[:8], 8)
    second = cache.tables()
    hit = cache.find(second, TOKENS)
    assert hit is not None
    assert hit.columns == 2
    assert hit.restores == [(1, first.saves[0][1])]
    assert hit.revivals == 1  # of the snapshot; the full blocks are held
    cache.take(second, hit, 10)
    assert second.restores == hit.restores
    assert not second.zeroings
    assert cache.pool.references[hit.restores[0][1]] == 1  # until the plan is closed
    cache.close_plan()
    assert cache.pool.references[hit.restores[0][1]] == 0
    for tables in (first, second):
        cache.release(tables)
    assert cache.pool.num_free == cache.pool.num_blocks - 1


def test_no_block_for_a_snapshot_is_no_obstacle() -> None:
    cache = make(FULL, RECURRENT, num_blocks=4)
    tables = cache.tables()
    cache.take(tables, None, 8)
    assert cache.pool.num_free == 0
    assert not tables.saves


def test_a_window_lets_go_by_what_is_confirmed() -> None:
    cache = make(FULL, SLIDING)
    tables = cache.tables()
    cache.take(tables, None, 24)
    cache.confirm(tables, TOKENS, 8)
    assert [block > 0 for block in tables.blocks[1]] == [True] * 6
    cache.confirm(tables, TOKENS, 9)  # position 9 reads 4 .. 9
    assert [block > 0 for block in tables.blocks[1]] == [False] + [True] * 5
    assert tables.watch == 13
    cache.confirm(tables, TOKENS, 24)
    assert [block > 0 for block in tables.blocks[1]] == [False] * 4 + [True] * 2
    assert all(tables.blocks[0])


def test_tails_are_evicted_before_beginnings() -> None:
    cache = make(FULL, StateSpec(kind="full", bytes_per_token=2), num_blocks=20)
    assert len(cache.kinds) == 2
    cache.release(compute(cache, TOKENS[:24]))
    columns = hit_columns(cache, TOKENS)
    empty = cache.pool.num_free - len(cache.index.keys)
    for _ in range(empty):
        cache.pool.allocate()
    seen = [columns]
    for _ in range(len(cache.index.keys)):
        cache.pool.allocate()
        seen.append(hit_columns(cache, TOKENS))
    assert seen == [6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0]


def test_room_does_not_count_what_a_hit_revives() -> None:
    cache = make(FULL, num_blocks=9)
    cache.release(compute(cache, TOKENS[:16]))
    tables = cache.tables()
    hit = cache.find(tables, TOKENS)
    assert hit is not None
    assert cache.pool.num_free == 8
    assert cache.room(hit) == 4
    assert cache.reach(tables, hit, cache.room(hit)) == 32
    assert cache.missing(hit, 30, 1) == 4
    cache.take(tables, hit, 30)
    assert cache.pool.num_free == 4 - 4


def test_a_failed_step_is_not_found() -> None:
    cache = make(FULL)
    tables = cache.tables()
    cache.take(tables, None, 12)
    written = cache.write(tables, TOKENS[:12], 12, 7)
    assert hit_columns(cache, TOKENS) == 3
    follower = cache.tables()
    hit = cache.find(follower, TOKENS)
    cache.take(follower, hit, 14)
    assert follower.trusted == set(tables.blocks[0])
    assert cache.disown(written) == set(tables.blocks[0])
    assert hit_columns(cache, TOKENS) == 0
    for each in (tables, follower):
        cache.release(each)
    assert cache.pool.num_free == cache.pool.num_blocks - 1
    assert not cache.index.keys


def test_without_prefix_caching_nothing_is_kept() -> None:
    plan = plan_cache([LayerState("0", FULL), LayerState("1", RECURRENT)], 4, 0, num_blocks_override=20)
    cache = Cache(plan, None)
    tables = cache.tables()
    assert cache.find(tables, TOKENS) is None
    cache.take(tables, None, 16)
    assert not tables.saves
    assert not cache.write(tables, TOKENS, 16, 1)
    cache.release(tables)
    assert not cache.index.keys
    assert cache.pool.num_free == 19
