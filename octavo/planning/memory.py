"""Memory: where a device's memory goes, stage by stage, and what its cache then holds. The worker's figures from meta tensors, the engine's
own plan of the cache from them.
"""

import msgspec

from octavo.config.config import Config
from octavo.engine.core import make_plan
from octavo.errors import ConfigError, MemoryPlanError
from octavo.kvcache.plan import blocks_for, bytes_for, fit_max_model_len, plan_cache
from octavo.kvcache.specs import CachePlan
from octavo.kvcache.worker_facts import WorkerFacts
from octavo.planning.hardware import GIB, Card
from octavo.planning.ranks import Rank
from octavo.planning.topology import Topology


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """One device of one pipeline stage. Sizes in bytes; tokens and lengths of whole requests, over all devices that share a cache."""

    total_bytes: int
    budget_bytes: int  # what --gpu-memory-utilization allows
    runtime_bytes: int
    graph_bytes: int
    weights_bytes: int
    arena_bytes: int
    cache_bytes: int  # 0 where nothing is left
    block_bytes: int
    num_blocks: int
    cache_tokens: int
    max_concurrency: float
    longest: int  # the longest request that the cache holds
    needed_bytes: int  # of budget, for one request of the length that was asked for
    bytes_per_token: int  # of this device's cache, by the layers that keep every token
    bytes_per_sequence: int  # by those that keep a bounded state: recurrent state, and windows when they are full
    why_not: str | None  # it does not fit


def make_room(config: Config, rank: Rank, card: Card, topology: Topology) -> Room:
    """What one device of the rank's stage has room for."""
    chunk, length = config.scheduler.max_num_batched_tokens, config.model.max_model_len
    share = topology.decode_context
    runtime, graphs = int(card.runtime_gib * GIB), int(card.graph_gib * GIB)
    budget = int(card.memory_bytes * config.cache.memory_utilization)
    fixed = runtime + graphs + rank.weights_bytes + rank.arena_bytes
    facts = WorkerFacts(
        states=rank.states,
        vocab_size=config.model.vocab_size,
        block_multiple=rank.block_multiple,
        device_total_bytes=card.memory_bytes,
        device_available_bytes=card.memory_bytes,
        budget_bytes=budget,
        runtime_bytes=runtime + graphs,
        weights_bytes=rank.weights_bytes,
        arena_bytes=rank.arena_bytes,
        cache_budget_bytes=max(0, budget - fixed),
    )
    least = plan_cache(rank.states, config.cache.block_size, 0, num_blocks_override=2)
    plan, why_not = _plan(_of_a_share(config, share), facts)
    needed = fixed + bytes_for(least, -(-length // share), chunk)
    if plan is None and why_not is not None and budget < fixed:
        why_not = f"weights and scratch take {(fixed - budget) / GIB:.1f} GiB more than the {budget / GIB:.1f} GiB that may be used"
    blocks = 0 if plan is None else plan.num_blocks - 1
    concurrency = blocks / blocks_for(least, max(1, -(-length // share)), chunk)
    longest = 0 if plan is None else fit_max_model_len(plan, chunk, 1 << 24) * share
    return Room(
        total_bytes=card.memory_bytes,
        budget_bytes=budget,
        runtime_bytes=runtime,
        graph_bytes=graphs,
        weights_bytes=rank.weights_bytes,
        arena_bytes=rank.arena_bytes,
        cache_bytes=0 if plan is None else plan.total_bytes,
        block_bytes=least.block_bytes,
        num_blocks=0 if plan is None else plan.num_blocks,
        cache_tokens=int(concurrency * length),
        max_concurrency=concurrency,
        longest=longest,
        needed_bytes=needed,
        bytes_per_token=sum(state.spec.bytes_per_token for state in rank.states if state.spec.kind == "full"),
        bytes_per_sequence=sum(
            state.spec.bytes_per_sequence + state.spec.bytes_per_token * state.spec.window
            for state in rank.states
            if state.spec.kind != "full"
        ),
        why_not=why_not,
    )


def _of_a_share(config: Config, share: int) -> Config:
    """The configuration as a device sees it that holds every share-th token of each request."""
    if share == 1:
        return config
    return msgspec.structs.replace(
        config, model=msgspec.structs.replace(config.model, max_model_len=-(-config.model.max_model_len // share))
    )


def _plan(config: Config, facts: WorkerFacts) -> tuple[CachePlan | None, str | None]:
    """The cache as the engine would plan it; or the largest one, and why the engine refuses it."""
    try:
        return make_plan(config, facts)[0], None
    except MemoryPlanError as error:
        why_not = error.fact
    cache = config.cache
    budget = facts.cache_budget_bytes if cache.memory_bytes is None else cache.memory_bytes
    try:
        return plan_cache(facts.states, cache.block_size, budget, num_blocks_override=cache.num_blocks_override), why_not
    except (MemoryPlanError, ConfigError):
        return None, why_not
