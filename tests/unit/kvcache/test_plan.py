"""The plan of the cache: groups, block sizes, and what a pool is worth in tokens."""

import pytest

from octavo.errors import ConfigError, MemoryPlanError, UnsupportedModelError
from octavo.kvcache.plan import blocks_for, cache_tokens, check_max_model_len, fit_max_model_len, plan_cache
from octavo.kvcache.specs import CachePlan, LayerState, StateSpec

FULL = StateSpec(kind="full", bytes_per_token=1024)
SLIDING = StateSpec(kind="sliding", bytes_per_token=1024, window=512)
RECURRENT = StateSpec(kind="recurrent", bytes_per_sequence=40_000)


def layers(*specs: StateSpec) -> list[LayerState]:
    return [LayerState(f"layers.{i}", spec) for i, spec in enumerate(specs)]


def gemma(sliding: int, full: int) -> list[LayerState]:
    """Every sixth layer is a full one, as far as there are full ones."""
    specs: list[StateSpec] = []
    while len(specs) < sliding + full:
        specs.append(FULL if len(specs) % 6 == 5 and specs.count(FULL) < full else SLIDING)
    return layers(*specs)


def test_one_kind_of_layer_is_one_group() -> None:
    plan = plan_cache(layers(*[FULL] * 30), 16, 30 * 16 * 1024 * 100 + 5)
    assert (len(plan.groups), plan.num_blocks, plan.block_bytes, plan.groups[0].page_bytes) == (1, 100, 30 * 16 * 1024, 16 * 1024)
    assert plan.groups[0].layers == [f"layers.{i}" for i in range(30)]
    assert cache_tokens(plan, 1000, 2048) == (int(99 / 63 * 1000), 99 / 63)


def test_gemma_has_groups_of_equal_slots_and_no_slot_unused() -> None:
    plan = plan_cache(gemma(15, 3), 16, 1 << 30)
    assert [len(group.layers) for group in plan.groups] == [3] * 6
    assert [group.spec.kind for group in plan.groups].count("full") == 1
    assert sorted(name for group in plan.groups for name in group.layers) == sorted(f"layers.{i}" for i in range(18))
    full = next(group for group in plan.groups if group.spec.kind == "full")
    assert full.layers == ["layers.5", "layers.11", "layers.17"]
    assert plan.block_bytes == 3 * 16 * 1024


@pytest.mark.parametrize(
    ("sliding", "full", "slots", "groups"),
    [(22, 4, 4, 7), (40, 8, 8, 6), (12, 12, 12, 2), (12, 13, 13, 2), (30, 1, 1, 31)],
)
def test_full_layers_hardly_ever_lose_slots(sliding: int, full: int, slots: int, groups: int) -> None:
    plan = plan_cache(layers(*[SLIDING] * sliding, *[FULL] * full), 16, 1 << 30)
    assert (plan.block_bytes, len(plan.groups)) == (slots * 16 * 1024, groups)


def test_states_of_different_sizes_share_one_block_size() -> None:
    plan = plan_cache(layers(FULL, RECURRENT), 16, 40_000 * 10)
    assert (plan.block_bytes, plan.num_blocks) == (40_000, 10)
    assert blocks_for(plan, 100, 64) == 7 + 2


def test_a_window_bounds_what_a_request_holds() -> None:
    plan = plan_cache(gemma(15, 3), 16, 0, num_blocks_override=1000)
    assert blocks_for(plan, 100, 2048) == 6 * 7
    # 511 tokens behind and a chunk of 256, in at most one block more than they fill
    assert blocks_for(plan, 8192, 256) == 512 + 5 * (48 + 1)
    tokens, concurrency = cache_tokens(plan, 8192, 256)
    assert concurrency == pytest.approx(999 / 757)
    assert tokens == int(999 / 757 * 8192) > 999 * 16 / 6


@pytest.mark.parametrize("num_blocks", [8, 57, 400, 1000])
def test_the_longest_length_fits_and_one_more_does_not(num_blocks: int) -> None:
    plan = plan_cache(gemma(15, 3), 16, 0, num_blocks_override=num_blocks)
    longest = fit_max_model_len(plan, 256, 100_000)
    assert blocks_for(plan, longest, 256) <= num_blocks - 1 < blocks_for(plan, longest + 1, 256)
    check_max_model_len(plan, 256, longest)
    with pytest.raises(MemoryPlanError, match=f"estimated maximum model length is {longest}"):
        check_max_model_len(plan, 256, longest + 1)
    assert fit_max_model_len(plan, 256, longest - 1) == longest - 1


def test_what_cannot_be_planned_says_why() -> None:
    with pytest.raises(MemoryPlanError, match="no memory is left") as caught:
        plan_cache(layers(FULL), 16, 1024)
    assert "raise --gpu-memory-utilization" in str(caught.value)
    with pytest.raises(UnsupportedModelError, match="keeps state"):
        plan_cache([], 16, 1 << 30)
    with pytest.raises(ConfigError, match="block size 6"):
        plan_cache(layers(StateSpec(kind="full", bytes_per_token=584, tokens_per_entry=4)), 6, 1 << 30)
    with pytest.raises(ConfigError, match="1 blocks"):
        plan_cache(layers(FULL), 16, 0, num_blocks_override=1)


def test_compressed_entries_take_fewer_bytes() -> None:
    plan = plan_cache(layers(StateSpec(kind="full", bytes_per_token=584, tokens_per_entry=4)), 16, 1 << 20)
    assert plan.groups[0].page_bytes == plan.block_bytes == 4 * 584


def test_a_planned_cache_is_no_larger_than_its_budget() -> None:
    for budget in (10**6, 10**7 + 1, 123_456_789):
        plan: CachePlan = plan_cache(gemma(15, 3), 16, budget)
        assert plan.total_bytes <= budget < plan.total_bytes + plan.block_bytes


def coded(count: int, bytes_per_token: int, plain: int = 0) -> CachePlan:
    """Layers of which some keep plain numbers of 256 bytes a token."""
    small = StateSpec(kind="full", bytes_per_token=bytes_per_token)
    return plan_cache(layers(*[StateSpec(kind="full", bytes_per_token=256)] * plain, *[small] * count), 16, 1 << 24)


@pytest.mark.parametrize(
    ("bytes_per_token", "plain", "groups"),
    [(128, 0, [30]), (128, 2, [2] + [4] * 7), (136, 2, [2] + [4] * 7), (72, 2, [2] + [7] * 4), (72, 4, [4, 14, 12])],
)
def test_groups_of_different_formats_share_blocks_and_hardly_waste_any(bytes_per_token: int, plain: int, groups: list[int]) -> None:
    plan = coded(30 - plain, bytes_per_token, plain)
    assert [len(group.layers) for group in plan.groups] == groups
    for group in plan.groups:
        used = len(group.layers) * group.page_bytes
        assert group.page_bytes == 16 * group.spec.bytes_per_token
        assert used <= plan.block_bytes
    wasted = sum(plan.block_bytes - len(group.layers) * group.page_bytes for group in plan.groups)
    assert wasted / (len(plan.groups) * plan.block_bytes) <= 0.125
    assert plan.block_bytes % 8 == 0
    assert plan.total_bytes == plan.num_blocks * plan.block_bytes <= 1 << 24


def test_pages_that_never_fit_together_lose_as_little_as_can_be() -> None:
    plan = plan_cache(layers(StateSpec(kind="full", bytes_per_token=256), StateSpec(kind="full", bytes_per_token=200)), 16, 1 << 20)
    assert (plan.block_bytes, len(plan.groups)) == (4096, 2)
