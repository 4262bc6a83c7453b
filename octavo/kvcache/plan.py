"""The plan of the cache: which layers share a block table, how large a block is, and what a number of blocks is worth in tokens."""

import math
from collections.abc import Sequence

from octavo.config.numbers import gib
from octavo.errors import ConfigError, MemoryPlanError, UnsupportedModelError
from octavo.kvcache.kind import kind_of
from octavo.kvcache.specs import CachePlan, Group, LayerState, StateSpec

ALIGNMENT = 8  # of blocks, so that numbers of every format stand where the CPU wants them
LARGER = "raise --gpu-memory-utilization or --kv-cache-memory-bytes"  # where nobody knows by how much


def plan_cache(
    states: Sequence[LayerState], block_size: int, budget_bytes: int, *, num_blocks_override: int | None = None, larger: str = LARGER
) -> CachePlan:
    """The largest cache that fits in budget_bytes, or one of num_blocks_override blocks whatever it takes.

    Layers of equal spec go into groups, in the order of the layers; a block is as large in every group, so that all draw from one pool, and
    the smaller the pages of a spec are, the more of its layers share a group. larger: how to get a larger cache, for the error. Raises
    MemoryPlanError if not even one block fits, ConfigError for a block size that does not suit a layer, UnsupportedModelError for a model
    that keeps no state.
    """
    if num_blocks_override is not None and num_blocks_override < 2:
        raise ConfigError(f"a cache of {num_blocks_override} blocks has none to use: block 0 belongs to nobody", "ask for 2 blocks or more")
    if not states:
        raise UnsupportedModelError("no layer of the model keeps state in the cache")
    by_spec: dict[StateSpec, list[str]] = {}
    for state in states:
        by_spec.setdefault(state.spec, []).append(state.name)
    for spec in by_spec:
        if block_size % spec.tokens_per_entry:
            raise ConfigError(
                f"block size {block_size} is not a multiple of the {spec.tokens_per_entry} tokens that share an entry",
                f"use a --block-size that is a multiple of {math.lcm(*(each.tokens_per_entry for each in by_spec))}",
            )
    pages = {spec: kind_of(spec).page_bytes(spec, block_size) for spec in by_spec}
    block_bytes = choose_block_bytes({spec: (len(names), pages[spec]) for spec, names in by_spec.items()})
    groups = []
    for spec, names in by_spec.items():
        most = block_bytes // pages[spec]
        groups += [Group(spec, names[i : i + most], pages[spec]) for i in range(0, len(names), most)]
    num_blocks = budget_bytes // block_bytes if num_blocks_override is None else num_blocks_override
    if num_blocks < 2:  # the null block and one to use
        raise no_memory(budget_bytes, larger)
    return CachePlan(block_size=block_size, num_blocks=num_blocks, block_bytes=block_bytes, groups=groups)


def choose_block_bytes(layers: dict[StateSpec, tuple[int, int]]) -> int:
    """The size of a block that makes the fewest groups, if no spec leaves more of its blocks unused than its kind allows.

    What a group leaves of a block is memory lost in every block that it holds; a group more is a block table more in every step.
    layers: how many layers have each spec, and how large a page of it is.
    """

    def groups(block_bytes: int) -> dict[StateSpec, int]:
        return {spec: -(-count // (block_bytes // page)) for spec, (count, page) in layers.items()}

    def unused(block_bytes: int) -> dict[StateSpec, float]:
        number = groups(block_bytes)
        return {spec: number[spec] * block_bytes / (count * page) - 1 for spec, (count, page) in layers.items()}

    largest = max(page for _, page in layers.values())
    exact = {number * page for count, page in layers.values() for number in range(1, count + 1) if number * page >= largest}
    sizes = {-(-size // ALIGNMENT) * ALIGNMENT for size in exact}
    fitting = [size for size in sizes if all(part <= kind_of(spec).most_unused for spec, part in unused(size).items())]
    if not fitting:  # pages that do not divide one another: the size that loses least
        return min(sizes, key=lambda size: (sum(number * size for number in groups(size).values()), size))
    return min(fitting, key=lambda size: (sum(groups(size).values()), size))


def blocks_for(plan: CachePlan, num_tokens: int, max_num_batched_tokens: int) -> int:
    """The most blocks that one request of num_tokens holds at a time, over all groups, when a step computes so many tokens."""
    return sum(kind_of(group.spec)(group.spec, plan.block_size).blocks_for(num_tokens, max_num_batched_tokens) for group in plan.groups)


def bytes_for(plan: CachePlan, num_tokens: int, max_num_batched_tokens: int) -> int:
    """Size of the smallest cache that one request of num_tokens has room in; with the null block."""
    return (blocks_for(plan, num_tokens, max_num_batched_tokens) + 1) * plan.block_bytes


def cache_tokens(plan: CachePlan, max_model_len: int, max_num_batched_tokens: int) -> tuple[int, float]:
    """(tokens, concurrency): how many requests of max_model_len the pool holds, and that number times max_model_len.

    So for a model with windows it is more than blocks times block size. The null block does not count.
    """
    concurrency = (plan.num_blocks - 1) / blocks_for(plan, max_model_len, max_num_batched_tokens)
    return int(concurrency * max_model_len), concurrency


def fit_max_model_len(plan: CachePlan, max_num_batched_tokens: int, upper: int) -> int:
    """The largest length, at most `upper`, that one request can have alone in the pool; 0 if there is none."""
    fits, too_long = 0, upper + 1
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if blocks_for(plan, middle, max_num_batched_tokens) <= plan.num_blocks - 1:
            fits = middle
        else:
            too_long = middle
    return fits


def check_max_model_len(plan: CachePlan, max_num_batched_tokens: int, max_model_len: int, larger: str = LARGER) -> None:
    """Raise MemoryPlanError, with both sizes and the longest length that fits, if a request of max_model_len does not fit.

    larger: how to get a cache that is large enough.
    """
    needed = bytes_for(plan, max_model_len, max_num_batched_tokens)
    if needed <= plan.total_bytes:
        return
    longest = fit_max_model_len(plan, max_num_batched_tokens, max_model_len)
    fact = f"one request of max_model_len {max_model_len} needs {gib(needed)} of KV cache, and {gib(plan.total_bytes)} are available"
    if longest > 0:
        fact += f"; the estimated maximum model length is {longest}"
    lower = f"lower --max-model-len to {longest} (or pass auto)" if longest > 0 else "lower --max-num-batched-tokens"
    raise MemoryPlanError(fact, f"{larger}, or {lower}")


def no_memory(budget_bytes: int, larger: str) -> MemoryPlanError:
    """The error for a cache that has no room at all."""
    return MemoryPlanError(
        f"no memory is left for the cache: {gib(budget_bytes)} after the weights, the arena and the runtime",
        f"{larger}, or lower --max-num-batched-tokens",
    )
