"""CPU_ATTN: pages of tiles, our own kernels. A token's result has the same bits alone, in a chunk and in a whole prompt."""

from typing import Any, ClassVar, NamedTuple

import torch

from octavo.attention.batch import Batch
from octavo.attention.interface import Cache, Facts, check_pages
from octavo.device.arena import Arena
from octavo.ops import attention, rope_store
from octavo.ops.op import choose
from octavo.ops.pages import TILE, Layout


class Plan(NamedTuple):
    """A step's list of work, and for which kind of layer it was made."""

    numbers: torch.Tensor  # int32
    shape: tuple[int, int, int]
    scratch_bytes: int
    window: int
    kv_heads: int
    query_heads: int


def _layout(facts: Facts) -> Layout:
    return Layout(
        kind="tiles",
        num_kv_heads=facts.num_kv_heads,
        head_dim=facts.head_dim,
        block_size=facts.block_size,
        format=facts.cache_format,
    )


def _attention_facts(facts: Facts) -> attention.Facts:
    return attention.Facts(
        num_heads=facts.num_heads,
        layout=_layout(facts),
        dtype=facts.dtype,
        scale=facts.scale,
        window=facts.window,
        softcap=facts.softcap,
        has_sinks=facts.has_sinks,
    )


def _store_facts(facts: Facts) -> rope_store.Facts:
    return rope_store.Facts(
        num_heads=facts.num_heads,
        layout=_layout(facts),
        dtype=facts.dtype,
        rotary_dim=facts.rotary_dim,
        interleaved=facts.interleaved,
    )


class Backend:
    """See octavo.attention.interface.Backend."""

    block_multiple: ClassVar[int] = TILE

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        from octavo.ops.cpu import attention_paged
        from octavo.ops.cpu import rope_store as kernel

        if facts.block_size % TILE:
            return f"block size {facts.block_size} is not a multiple of {TILE}"
        if facts.head_dim % TILE:
            return f"head dimension {facts.head_dim} is not a multiple of {TILE}"
        if reason := facts.cache_format.refuses(facts.head_dim):
            return reason
        return attention_paged.refuses(_attention_facts(facts)) or kernel.Implementation.refuses(_store_facts(facts))

    def __init__(self, facts: Facts, dry: bool = False) -> None:
        self.facts = facts
        self._dry = dry
        self._attention_facts = _attention_facts(facts)
        attend, store = choose("attention", self._attention_facts, dry=dry), choose("rope_store", _store_facts(facts), dry=dry)
        self.choices = {choice.op: choice.name for choice in (attend, store)}
        self._attend: Any = attend.implementation
        self._store: Any = store.implementation

    def layout(self) -> Layout:
        return self._attention_facts.layout

    def bind(self, pages: torch.Tensor, scales: torch.Tensor | None = None) -> Cache:
        return check_pages(pages, self.layout(), scales)

    def _planned(self, batch: Batch, group: int) -> Plan | None:
        """The group's plan, if it is one for layers like this."""
        plan, f = batch.plans.get(group), self.facts
        if isinstance(plan, Plan) and (plan.window, plan.kv_heads, plan.query_heads) == (f.window, f.num_kv_heads, f.num_heads):
            return plan
        return None

    def _make_plan(self, batch: Batch, arena: Arena) -> Plan:
        shape = (batch.num_tokens, batch.num_rows, batch.max_length)
        numbers = arena.empty(self._attend.plan_numbers(self._attention_facts, *shape), dtype=torch.int32)
        if not self._dry:
            self._attend.plan(numbers, batch.row_starts[: batch.num_rows + 1], batch.lengths[: batch.num_rows])
        scratch_bytes = self._attend.scratch_size(self._attention_facts, *shape)
        return Plan(numbers, shape, scratch_bytes, self.facts.window, self.facts.num_kv_heads, self.facts.num_heads)

    def plan(self, batch: Batch, group: int, arena: Arena) -> None:
        batch.plans[group] = self._make_plan(batch, arena)

    def store(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cos_sin: torch.Tensor | None,
        batch: Batch,
        group: int,
        cache: Cache,
    ) -> None:
        self._store(query, key, value, cos_sin, batch.positions, cache.pages, batch.slots[group], cache.scales)

    def attend(
        self,
        out: torch.Tensor,
        query: torch.Tensor,
        batch: Batch,
        group: int,
        cache: Cache,
        arena: Arena,
        sinks: torch.Tensor | None = None,
    ) -> None:
        with arena.scope():
            plan = self._planned(batch, group) or self._make_plan(batch, arena)
            scratch = arena.empty(plan.scratch_bytes, dtype=torch.uint8)
            tables, starts, lengths = batch.tables[group], batch.row_starts, batch.lengths
            told = {"scales": cache.scales, "plan": plan.numbers, "scratch": scratch, "shape": plan.shape}
            self._attend(out, query, cache.pages, tables, starts, lengths, sinks, **told)
