"""The cache: every request's tables over one pool and one index. All groups agree on what a hit is and share what is free."""

import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.hashing import BlockHasher, extra_keys
from octavo.kvcache.kind import kind_of
from octavo.kvcache.prefix_index import PrefixIndex
from octavo.kvcache.residency import WatchedPool
from octavo.kvcache.specs import CachePlan
from octavo.kvcache.tables import Hit, Tables

Written = tuple[int, int, bytes]  # block, group, key: what a step writes and the index shows


class Cache:
    """Blocks are allocated when a step is planned, indexed when the plan is closed, and believed when its result has come.

    hasher: None if prefix caching is off. sample: the share of the blocks whose stays are told; 0 = none.
    """

    def __init__(
        self, plan: CachePlan, hasher: BlockHasher | None, sample: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.block_size = plan.block_size
        self.hasher = hasher
        self.index = PrefixIndex(len(plan.groups))
        blocks = plan.num_blocks
        self.pool = WatchedPool(blocks, self.index, sample, clock) if sample else BlockPool(blocks, self.index)
        self.kinds = [kind_of(group.spec)(group.spec, plan.block_size) for group in plan.groups]
        self.growing = [g for g, kind in enumerate(self.kinds) if kind.grows]
        self.fixed = [g for g, kind in enumerate(self.kinds) if not kind.grows]
        self.can_rewind = all(kind.can_rewind for kind in self.kinds)
        self.saves_snapshots = hasher is not None and bool(self.fixed)
        self._unconfirmed: dict[int, int] = {}  # indexed block -> the step that writes it, while its result has not come
        self._pinned: list[int] = []  # snapshots that the plan being made restores

    def tables(self, salt: str | None = None, adapter: str | None = None) -> Tables:
        return Tables(len(self.kinds), salt, adapter)

    # what may be taken: nothing here changes anything

    def fits(self, num_tokens: int, in_flight: int) -> bool:
        """Whether a request of so many tokens can be computed in this pool when it is alone."""
        return sum(kind.blocks_for(num_tokens, in_flight) for kind in self.kinds) < self.pool.num_blocks

    def find(self, tables: Tables, tokens: "array[int]") -> Hit | None:
        """The longest prefix that every group can take over. It ends before the last token, which must be computed to get a sample."""
        columns = self.longest_possible_hit(len(tokens))
        if self.hasher is None or columns == 0:
            return None
        self._extend_keys(tables, tokens, columns)
        agreed = -1
        while columns != agreed:
            agreed = columns
            for group, kind in enumerate(self.kinds):
                columns = kind.longest_hit(self.index.blocks[group], tables.keys, columns)
        return self._hit(tables.keys, columns) if columns else None

    def longest_possible_hit(self, num_tokens: int) -> int:
        """In columns."""
        return (num_tokens - 1) // self.block_size

    def room(self, hit: Hit | None) -> int:
        """Blocks that can be allocated once the hit is held: a block that is revived is not free too."""
        return self.pool.num_free - (hit.revivals if hit is not None else 0)

    def freed_by(self, released: Iterable[Tables], hit: Hit | None) -> int:
        """Blocks that would be free if all these were released, those of the hit aside, which would be held again at once."""
        held = Counter(block for tables in released for block in _held(tables.blocks, tables.snapshots))
        for block in _held(hit.blocks, hit.restores) if hit is not None else ():
            held.pop(block, None)
        return sum(1 for block, count in held.items() if count == self.pool.references[block])

    def reach(self, tables: Tables, hit: Hit | None, room: int) -> int:
        """How many tokens the request can have when `room` blocks go to it."""
        if not tables.is_begun:  # live states come first
            room -= len(self.fixed)
        if room < 0:
            return 0
        columns = hit.columns if hit is not None else tables.columns
        return (columns + room // len(self.growing)) * self.block_size if self.growing else 1 << 30

    def missing(self, hit: Hit | None, num_tokens: int, in_flight: int) -> int:
        """Blocks to allocate, the hit aside, for a request that begins and is to have num_tokens."""
        needed = len(self.fixed)
        for group in self.growing:
            needed += self.kinds[group].blocks_for(num_tokens, in_flight)
            if hit is not None:
                needed -= len(hit.blocks[group]) - hit.blocks[group].count(0)
        return needed

    # taking

    def take(self, tables: Tables, hit: Hit | None, end: int) -> None:
        """Hold the hit, then allocate what tokens up to `end` need."""
        if not tables.is_begun:
            if hit is not None:
                self.pin(tables, hit)
            self._begin_states(tables, hit)
            tables.is_begun = True
        self.grow(tables, end)
        if self.saves_snapshots and end % self.block_size == 0:
            self._save_snapshots(tables, end)

    def pin(self, tables: Tables, hit: Hit) -> None:
        """Hold the blocks of a hit: nothing allocated from now on can be one of them."""
        for group in self.growing:
            for block in hit.blocks[group]:
                if block:
                    self.pool.hold(block)
            tables.blocks[group] = hit.blocks[group].copy()
            tables.first[group] = self.kinds[group].first_of_hit(hit.columns)
        for _, snapshot in hit.restores:
            self.pool.hold(snapshot)
            self._pinned.append(snapshot)
        tables.restores = hit.restores
        tables.columns = tables.indexed = hit.columns
        tables.capacity = hit.columns * self.block_size
        if self._unconfirmed:
            held = [block for blocks in hit.blocks for block in blocks] + [snapshot for _, snapshot in hit.restores]
            tables.trusted = frozenset(block for block in held if block in self._unconfirmed)

    def grow(self, tables: Tables, end: int) -> None:
        """Allocate columns for tokens up to `end`."""
        columns = -(-end // self.block_size)
        for _ in range(tables.columns, columns):
            for group in self.growing:
                tables.blocks[group].append(self.pool.allocate())
        if columns > tables.columns:
            tables.columns = columns
            tables.capacity = columns * self.block_size

    def _begin_states(self, tables: Tables, hit: Hit | None) -> None:
        for group in self.fixed:
            tables.blocks[group] = [self.pool.allocate()]
            if hit is None:
                tables.zeroings.append((group, tables.blocks[group][0]))

    def _save_snapshots(self, tables: Tables, end: int) -> None:
        """A block for each live state at the border `end`; without one the border is simply not remembered."""
        if end <= tables.indexed * self.block_size or self.pool.num_free < len(self.fixed):
            return
        for group in self.fixed:
            block = self.pool.allocate()
            tables.snapshots.append((end, group, block))
            tables.saves.append((group, block))
        tables.watch = min(tables.watch, end)

    # indexing

    def write(self, tables: Tables, tokens: "array[int]", end: int, step: int | None = None) -> list[Written]:
        """Index the full blocks of tokens up to `end`, all of them known.

        step: the one whose plan is being closed, which writes the last of them; None if all of it is confirmed. Gives what is new.
        """
        written: list[Written] = []
        columns = end // self.block_size
        if self.hasher is None or columns <= tables.indexed:
            return written
        self._extend_keys(tables, tokens, columns)
        for column in range(tables.indexed, columns):
            key = tables.keys[column]
            for group in self.growing:
                block = tables.blocks[group][column]
                if block and self.pool.cache(block, group, key):
                    if step is not None:
                        self._unconfirmed[block] = step
                    written.append((block, group, key))
        tables.indexed = columns
        return written

    def close_plan(self) -> None:
        """The plan is made: what it restores is read before a later plan can write there."""
        for block in self._pinned:
            self.pool.drop(block)
        self._pinned.clear()

    def believe(self, written: Iterable[Written], step: int) -> None:
        """The step has run: its blocks hold what their keys say."""
        for block, _, _ in written:
            if self._unconfirmed.get(block) == step:
                del self._unconfirmed[block]

    def disown(self, written: Iterable[Written]) -> set[int]:
        """The step failed: let nobody find the blocks it would have written. Gives those that were still in the index."""
        gone = set()
        for block, group, key in written:
            if self.index.keys.get(block) == (group, key):
                self.pool.uncache(block)
                self._unconfirmed.pop(block, None)
                gone.add(block)
        return gone

    def confirm(self, tables: Tables, tokens: "array[int]", confirmed: int) -> None:
        """So many tokens are computed for certain: let go what lies before the windows, and index the snapshots."""
        while tables.snapshots and tables.snapshots[0][0] <= confirmed:
            end, group, block = tables.snapshots.pop(0)
            self._extend_keys(tables, tokens, end // self.block_size)
            self.pool.cache(block, group, tables.keys[end // self.block_size - 1])
            self.pool.drop(block)
        watch = 1 << 30
        for group in self.growing:
            kind = self.kinds[group]
            first, needed = tables.first[group], min(kind.first_needed(confirmed), tables.columns)
            for column in range(first, needed):
                if block := tables.blocks[group][column]:
                    self.pool.drop(block)
                    tables.blocks[group][column] = 0
            if needed > first:
                tables.first[group] = first = needed
            release = kind.next_release(first)
            if release is not None:
                watch = min(watch, release)
        tables.watch = min(watch, tables.snapshots[0][0]) if tables.snapshots else watch

    # letting go

    def release(self, tables: Tables) -> None:
        """Drop everything, the last columns of all groups first, so that the beginnings of prefixes live longest."""
        for column in range(tables.columns - 1, -1, -1):
            for group in self.growing:
                if block := tables.blocks[group][column]:
                    self.pool.drop(block)
        for group in self.fixed:
            for block in tables.blocks[group]:
                self.pool.drop(block)
        for _, _, block in tables.snapshots:
            self.pool.drop(block)
        tables.reset(len(self.kinds))

    def clear_index(self) -> bool:
        """Forget all prefixes; False, and nothing is done, while any request holds blocks."""
        return self.pool.clear_cache()

    def _extend_keys(self, tables: Tables, tokens: "array[int]", columns: int) -> None:
        assert self.hasher is not None
        keys, size = tables.keys, self.block_size
        for column in range(len(keys), columns):
            start, end = column * size, (column + 1) * size
            extra = extra_keys(start, end, tables.salt, tables.adapter)
            keys.append(self.hasher.hash(keys[-1] if keys else self.hasher.root, tokens[start:end].tobytes(), extra))

    def _hit(self, keys: list[bytes], columns: int) -> Hit:
        blocks: list[list[int]] = [[] for _ in self.kinds]
        for group in self.growing:
            first, found = self.kinds[group].first_of_hit(columns), self.index.blocks[group]
            blocks[group] = [0] * first + [found[key] for key in keys[first:columns]]
        restores = [(group, self.index.blocks[group][keys[columns - 1]]) for group in self.fixed]
        return Hit(columns, blocks, restores, self.pool.num_revivals(_held(blocks, restores)))


def _held(blocks: list[list[int]], snapshots: Sequence[tuple[int, ...]]) -> Iterator[int]:
    """The blocks of all groups, and those that end the tuples."""
    for column in blocks:
        yield from (block for block in column if block)
    yield from (entry[-1] for entry in snapshots)
