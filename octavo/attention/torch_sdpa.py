"""TORCH_SDPA: plain pages and plain torch in float32. Any shape, any dtype, any block size; what the others are compared with."""

from typing import ClassVar

import torch

from octavo.attention.batch import Batch
from octavo.attention.interface import Cache, Facts, check_pages
from octavo.device.arena import Arena
from octavo.ops import attention, rope_store
from octavo.ops.pages import Layout


class Backend:
    """See octavo.attention.interface.Backend."""

    block_multiple: ClassVar[int] = 1

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if facts.num_heads % facts.num_kv_heads:
            return f"{facts.num_heads} query heads are not a multiple of {facts.num_kv_heads} kv heads"
        return facts.cache_format.refuses(facts.head_dim)

    def __init__(self, facts: Facts, dry: bool = False) -> None:
        self.facts = facts
        self._dry = dry
        self.choices = {"attention": "reference", "rope_store": "reference"}
        self._layout = Layout(
            kind="plain",
            num_kv_heads=facts.num_kv_heads,
            head_dim=facts.head_dim,
            block_size=facts.block_size,
            format=facts.cache_format,
        )
        self._attention_facts = attention.Facts(
            num_heads=facts.num_heads,
            layout=self._layout,
            dtype=facts.dtype,
            scale=facts.scale,
            window=facts.window,
            softcap=facts.softcap,
            has_sinks=facts.has_sinks,
        )
        self._attend = attention.Reference(self._attention_facts)
        self._store = rope_store.Reference(
            rope_store.Facts(
                num_heads=facts.num_heads,
                layout=self._layout,
                dtype=facts.dtype,
                rotary_dim=facts.rotary_dim,
                interleaved=facts.interleaved,
            )
        )

    def layout(self) -> Layout:
        return self._layout

    def bind(self, pages: torch.Tensor, scales: torch.Tensor | None = None) -> Cache:
        return check_pages(pages, self._layout, scales)

    def plan(self, batch: Batch, group: int, arena: Arena) -> None:
        """Nothing: each call works its step out anew."""

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
        if not self._dry:
            tokens = query.shape[0]
            slots = batch.slots[group][:tokens]
            self._store(query, key, value, cos_sin, batch.positions[:tokens], cache.pages, slots, cache.scales)

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
        rows = batch.num_rows
        with arena.scope():
            # torch allocates for itself; a piece as large stays untouched in the arena, so that the step's sum is the true one
            arena.empty(
                attention.Reference.scratch_size(self._attention_facts, batch.num_tokens, rows, batch.max_length), dtype=torch.uint8
            )
            if not self._dry:
                tables, starts, lengths = batch.tables[group][:rows], batch.row_starts[: rows + 1], batch.lengths[:rows]
                self._attend(out, query, cache.pages, tables, starts, lengths, sinks, cache.scales)
