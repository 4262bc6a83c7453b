"""Bugs to plant: each one changes the real code as a plausible mistake would, and the simulation must notice.

The first ten are the holes that the scheduler's rules about limits close; the others are mistakes that engines have been seen to make.
"""

from collections.abc import Callable
from typing import Any

import pytest

from octavo.kvcache import cache as cache_module
from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.cache import Cache
from octavo.kvcache.hashing import BlockHasher
from octavo.kvcache.kinds import sliding
from octavo.kvcache.tables import Hit, Tables
from octavo.protocol.step import STORED
from octavo.scheduler import logprobs as logprobs_module
from octavo.scheduler import places as places_module
from octavo.scheduler import scheduler as scheduler_module
from octavo.scheduler.assembly import Step
from octavo.scheduler.limits.cache_blocks import CacheBlocks
from octavo.scheduler.limits.rows import Rows
from octavo.scheduler.limits.token_budget import TokenBudget
from octavo.scheduler.masks import MaskMaker
from octavo.scheduler.request import Request
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.stopping import StopRules
from octavo.scheduler.waiting import WaitingQueue

Plant = Callable[[pytest.MonkeyPatch], None]
BUGS: dict[str, Plant] = {}


def bug(plant: Plant) -> Plant:
    BUGS[plant.__name__] = plant
    return plant


@bug
def limits_asked_once(patch: pytest.MonkeyPatch) -> None:
    def settle(limits: Any, request: Any, start: Any, want: int, preempted: Any = ()) -> Any:
        for limit in limits:
            want = min(want, limit.grant_without(request, start, want, preempted))
            if want <= 0:
                return 0, limit
        return want, None

    patch.setattr(scheduler_module, "settle", settle)
    patch.setattr(places_module, "settle", settle)


@bug
def revived_block_counts_as_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "room", lambda self, hit: self.pool.num_free)


@bug
def victim_was_visited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "_victim", lambda self: self.running[0])


@bug
def waiting_request_preempts_its_equals(patch: pytest.MonkeyPatch) -> None:
    visit = Scheduler._visit

    def preempting(self: Scheduler, step: Step) -> None:
        visit(self, step)
        if self.waiting.first() and self.running and self.running[-1] not in step.requests:
            self._preempt(step, self.running[-1])
            self._admit(step, ())

    patch.setattr(Scheduler, "_visit", preempting)


@bug
def higher_priority_waits_for_a_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rows, "grant_without", lambda self, request, start, want, preempted: self.grant(request, start, want))


@bug
def higher_priority_waits_for_blocks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "freed_by", lambda self, released, hit: 0)


@bug
def preempts_without_knowing_that_it_helps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "freed_by", lambda self, released, hit: sum(tables.columns * len(self.growing) + 1 for tables in released))


@bug
def shared_block_counts_as_freed(patch: pytest.MonkeyPatch) -> None:
    def freed_by(self: Cache, released: Any, hit: Any) -> int:
        return len({block for tables in released for blocks in tables.blocks for block in blocks if block})

    patch.setattr(Cache, "freed_by", freed_by)


@bug
def hit_of_a_victim_counts_as_freed(patch: pytest.MonkeyPatch) -> None:
    freed_by = Cache.freed_by
    patch.setattr(Cache, "freed_by", lambda self, released, hit: freed_by(self, released, None))


@bug
def preempts_more_than_it_needs(patch: pytest.MonkeyPatch) -> None:
    find = places_module.find_place

    def greedy(limits: Any, request: Any, lower: Any) -> Any:
        place = find(limits, request, lower)
        return place._replace(victims=lower) if place is not None and place.victims else place

    patch.setattr(scheduler_module, "find_place", greedy)


@bug
def preempts_the_first_of_the_lower(patch: pytest.MonkeyPatch) -> None:
    find = places_module.find_place

    def early(limits: Any, request: Any, lower: Any) -> Any:
        place = find(limits, request, lower)
        return place._replace(victims=lower[: len(place.victims)]) if place is not None and place.victims else place

    patch.setattr(scheduler_module, "find_place", early)


@bug
def large_request_stops_the_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "_may_be_overtaken", lambda self, request: False)


@bug
def large_request_is_overtaken_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Request, "overtaken", property(lambda self: 0, lambda self, count: None))


@bug
def preempted_request_is_overtaken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Request, "has_run", False)


@bug
def who_was_set_aside_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitingQueue, "put_back", lambda self: self.aside.clear())


@bug
def admitted_request_is_visited_twice(patch: pytest.MonkeyPatch) -> None:
    admit = Scheduler._admit

    def again(self: Scheduler, step: Step, lower: Any) -> bool:
        first, num_before = self.waiting.first(), len(self.running)
        result = admit(self, step, lower)
        if lower and len(self.running) > num_before and first is not None:
            self._grant_running(step, self.running.index(first), len(self.running))
        return result

    patch.setattr(Scheduler, "_admit", again)


@bug
def window_freed_by_planned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Scheduler, "_let_go", lambda self, request: self.cache.confirm(request.tables, request.tokens, min(request.planned, request.known))
    )
    original = Scheduler._close

    def close(self: Scheduler, step: Step) -> None:
        original(self, step)
        for request in step.requests:
            for group in self.cache.growing:
                first = min(self.cache.kinds[group].first_needed(request.planned), request.tables.columns)
                for column in range(request.tables.first[group], first):
                    if block := request.tables.blocks[group][column]:
                        self.cache.pool.drop(block)
                        request.tables.blocks[group][column] = 0
                request.tables.first[group] = max(first, request.tables.first[group])

    patch.setattr(Scheduler, "_close", close)


@bug
def unconfirmed_tokens_are_hashed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "_written_end", lambda self, request: request.planned)


@bug
def hits_see_the_plan_being_made(patch: pytest.MonkeyPatch) -> None:
    take = Scheduler._take

    def eager(self: Scheduler, step: Step, request: Request, *rest: Any) -> None:
        take(self, step, request, *rest)
        self.cache.write(request.tables, request.tokens, self._written_end(request), step.serial)

    patch.setattr(Scheduler, "_take", eager)


@bug
def failed_step_stays_indexed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "disown", lambda self, written: set())


@bug
def hit_leaves_nothing_to_compute(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "longest_possible_hit", lambda self, num_tokens: num_tokens // self.block_size)


@bug
def allocates_before_it_pins_the_hit(patch: pytest.MonkeyPatch) -> None:
    take = Cache.take

    def late(self: Cache, tables: Tables, hit: Hit | None, end: int) -> None:
        if hit is None or tables.is_begun:
            take(self, tables, hit, end)
            return
        wanted = -(-end // self.block_size) - hit.columns
        early = [[self.pool.allocate() for _ in range(wanted)] for _ in self.growing]
        self.pin(tables, hit)
        self._begin_states(tables, hit)
        tables.is_begun = True
        for group, blocks in zip(self.growing, early):
            tables.blocks[group] += blocks
        tables.columns += wanted
        tables.capacity = tables.columns * self.block_size

    patch.setattr(Cache, "take", late)


@bug
def block_is_freed_while_referenced(patch: pytest.MonkeyPatch) -> None:
    def drop(self: BlockPool, block: int) -> None:
        if self.references[block] == 0:
            return
        self.references[block] = 0
        if block in self.index.keys:
            self._cached[block] = None
        else:
            self._empty.append(block)

    patch.setattr(BlockPool, "drop", drop)


@bug
def evicted_block_stays_indexed(patch: pytest.MonkeyPatch) -> None:
    def allocate(self: BlockPool) -> int:
        block = self._empty.pop() if self._empty else self._cached.popitem(last=False)[0]
        self.references[block] = 1
        return block

    patch.setattr(BlockPool, "allocate", allocate)


@bug
def epoch_is_not_raised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rows, "next_epoch", lambda self: 0)


@bug
def key_ignores_the_parent(patch: pytest.MonkeyPatch) -> None:
    original = BlockHasher.hash
    patch.setattr(BlockHasher, "hash", lambda self, parent, tokens, extra=(): original(self, self.root, tokens, extra))


@bug
def salt_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cache_module, "extra_keys", lambda *_: ())


@bug
def table_outlives_a_preemption(patch: pytest.MonkeyPatch) -> None:
    reset = Tables.reset

    def keeping(self: Tables, num_groups: int) -> None:
        blocks = getattr(self, "blocks", None)
        reset(self, num_groups)
        if blocks is not None:
            self.blocks = blocks

    patch.setattr(Tables, "reset", keeping)


@bug
def snapshot_is_taken_off_a_border(patch: pytest.MonkeyPatch) -> None:
    take = Cache.take

    def everywhere(self: Cache, tables: Tables, hit: Hit | None, end: int) -> None:
        take(self, tables, hit, end)
        if self.saves_snapshots and end % self.block_size:
            self._save_snapshots(tables, end // self.block_size * self.block_size)

    patch.setattr(Cache, "take", everywhere)


@bug
def new_state_is_not_zeroed(patch: pytest.MonkeyPatch) -> None:
    begin = Cache._begin_states

    def dirty(self: Cache, tables: Tables, hit: Hit | None) -> None:
        begin(self, tables, hit)
        tables.zeroings = []

    patch.setattr(Cache, "_begin_states", dirty)


@bug
def snapshot_is_not_restored(patch: pytest.MonkeyPatch) -> None:
    pin = Cache.pin

    def forgetful(self: Cache, tables: Tables, hit: Hit) -> None:
        pin(self, tables, hit)
        tables.restores = []

    patch.setattr(Cache, "pin", forgetful)


@bug
def restored_snapshot_is_not_pinned(patch: pytest.MonkeyPatch) -> None:
    pin = Cache.pin

    def loose(self: Cache, tables: Tables, hit: Hit) -> None:
        pin(self, tables, hit)
        for _ in hit.restores:
            self.pool.drop(self._pinned.pop())

    patch.setattr(Cache, "pin", loose)


@bug
def sample_comes_from_another_step(patch: pytest.MonkeyPatch) -> None:
    add = Step.add

    def early(self: Step, *arguments: Any) -> None:
        add(self, *arguments)
        if self._sources[-1] != STORED:
            self._sources[-1] -= 1

    patch.setattr(Step, "add", early)


@bug
def unknown_sample_counts_as_stored(patch: pytest.MonkeyPatch) -> None:
    add = Step.add

    def stored(self: Step, request: Request, position: int, *rest: Any) -> None:
        add(self, request, position + (1 if request.pending else 0), *rest)

    patch.setattr(Step, "add", stored)


@bug
def recomputed_prompt_counts_again(patch: pytest.MonkeyPatch) -> None:
    reset = Request.reset

    def forgetful(self: Request) -> None:
        reset(self)
        self.counted = 0

    patch.setattr(Request, "reset", forgetful)


@bug
def tokens_after_the_end_are_kept(patch: pytest.MonkeyPatch) -> None:
    def gain(self: Scheduler, request: Request, new: list[int]) -> Any:
        verdict = None
        for token in new:
            request.tokens.append(token)
            request.known += 1
            verdict = verdict or request.stop.verdict(request.tokens, request.known)
        self._stats.generation_tokens += len(new)
        return len(new), verdict

    patch.setattr(Scheduler, "_gain", gain)


@bug
def rejected_draft_counts_as_computed(patch: pytest.MonkeyPatch) -> None:
    advance = Scheduler._advance

    def optimistic(self: Scheduler, step: Step, index: int, request: Request, gained: int) -> None:
        planned = request.planned
        advance(self, step, index, request, gained)
        request.planned = planned

    patch.setattr(Scheduler, "_advance", optimistic)


@bug
def window_is_one_too_short(patch: pytest.MonkeyPatch) -> None:
    needed = sliding.Kind.first_needed
    patch.setattr(sliding.Kind, "first_needed", lambda self, confirmed: needed(self, confirmed + 1))
    patch.setattr(sliding.Kind, "next_release", lambda self, first: 0)


@bug
def hit_needs_one_block_less_of_the_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sliding.Kind, "first_of_hit", lambda self, columns: max(0, columns - self._behind + 1))


@bug
def min_tokens_does_not_guard(patch: pytest.MonkeyPatch) -> None:
    init = StopRules.__init__

    def unguarded(self: StopRules, *arguments: Any) -> None:
        init(self, *arguments)
        self._guarded_until = 0

    patch.setattr(StopRules, "__init__", unguarded)


@bug
def length_is_checked_before_the_stop_tokens(patch: pytest.MonkeyPatch) -> None:
    verdict = StopRules.verdict

    def hasty(self: StopRules, tokens: Any, known: int) -> Any:
        found = verdict(self, tokens, known)
        return (scheduler_module.FinishReason.LENGTH, None) if found and known >= self._limit else found

    patch.setattr(StopRules, "verdict", hasty)


@bug
def blocks_leak_at_the_end(patch: pytest.MonkeyPatch) -> None:
    release = CacheBlocks.release

    def leaking(self: CacheBlocks, request: Request) -> None:
        if request.tables.columns > 1:
            for group in self._cache.growing:
                request.tables.blocks[group][-1] = 0
        release(self, request)

    patch.setattr(CacheBlocks, "release", leaking)


@bug
def failed_row_stays_indexed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "_disown_rows", lambda self, step, epochs: set())


@bug
def dependents_of_a_failed_step_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "_restart_dependents", lambda self, gone: None)


@bug
def admits_in_a_step_that_preempted(patch: pytest.MonkeyPatch) -> None:
    original = Scheduler._preempt

    def eager(self: Scheduler, step: Step, request: Request) -> None:
        original(self, step, request)
        step.has_preempted = False

    patch.setattr(Scheduler, "_preempt", eager)


@bug
def preempted_request_goes_to_the_back(patch: pytest.MonkeyPatch) -> None:
    def late(self: Scheduler, request: Request) -> None:
        self._leave(request)
        self._arrivals += 1
        request.order = (request.order[0], 1e9, self._arrivals)
        self.waiting.push(request)

    patch.setattr(Scheduler, "_restart", late)


@bug
def pending_outlives_a_preemption(patch: pytest.MonkeyPatch) -> None:
    reset = Request.reset

    def partial(self: Request) -> None:
        pending = getattr(self, "pending", 0)
        reset(self)
        self.pending = pending

    patch.setattr(Request, "reset", partial)


@bug
def budget_is_not_spent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TokenBudget, "take", lambda self, request, start, granted: None)


@bug
def aborted_request_is_admitted(patch: pytest.MonkeyPatch) -> None:
    def first(self: WaitingQueue) -> Request | None:
        return self._heap[0][1] if self._heap else None

    patch.setattr(WaitingQueue, "first", first)


@bug
def prompt_alone_is_sampled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Request, "only_reads", False)


@bug
def prompt_alone_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """Its rest, after a first chunk, counts as on its way."""
    original = Scheduler._visit

    def hasty(self: Scheduler, step: Step) -> None:
        passed = [request for request in self.running if request.only_reads]
        self.running = [request for request in self.running if not request.only_reads]
        original(self, step)
        self.running = sorted([*self.running, *passed], key=lambda request: request.order)

    patch.setattr(Scheduler, "_visit", hasty)


@bug
def prompt_logprobs_are_told_twice(patch: pytest.MonkeyPatch) -> None:
    original = logprobs_module.untold
    patch.setattr(scheduler_module, "untold", lambda chunk, told: original(chunk, 0))


@bug
def hit_skips_prompt_logprobs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Request, "reads_prefix_cache", True)


@bug
def masks_are_of_the_newest_step(patch: pytest.MonkeyPatch) -> None:
    """They are made before the tokens of the step before it are known."""

    def take(self: Scheduler) -> Any:
        if not self._outstanding or not self._outstanding[-1].awaits_masks:
            return None
        step = self._outstanding[-1]
        step.awaits_masks = False
        return self._constraints.masks(step)

    patch.setattr(Scheduler, "take_masks", take)


@bug
def masks_are_those_of_the_step_before(patch: pytest.MonkeyPatch) -> None:
    make = MaskMaker.make

    def stale(self: Any, step: Step) -> Any:
        made = make(self, step)
        last, self.last = getattr(self, "last", made), made
        return last if last.step != made.step and last.rows == made.rows and last.masks else made

    def renumbered(self: Any, step: Step) -> Any:
        found = stale(self, step)
        return type(found)(step.number, found.rows, found.words, found.masks, found.forced_rows, found.forced_tokens)

    patch.setattr(MaskMaker, "make", renumbered)


@bug
def masks_go_to_other_rows(patch: pytest.MonkeyPatch) -> None:
    make = MaskMaker.make

    def turned(self: Any, step: Step) -> Any:
        made = make(self, step)
        made.rows = made.rows[4:] + made.rows[:4]
        return made

    patch.setattr(MaskMaker, "make", turned)


@bug
def preempted_request_begins_its_grammar_again(patch: pytest.MonkeyPatch) -> None:
    reset = Request.reset

    def forgetful(self: Request) -> None:
        reset(self)
        constraint = getattr(self, "constraint", None)
        if constraint is not None:
            constraint._matcher = type(constraint._matcher)(constraint._matcher.number)

    patch.setattr(Request, "reset", forgetful)


@bug
def grammar_takes_a_token_in_twice(patch: pytest.MonkeyPatch) -> None:
    gain = Scheduler._gain

    def twice(self: Scheduler, request: Request, new: list[int]) -> Any:
        if request.constraint is not None and new:
            request.constraint.accept(new[0])
        return gain(self, request, new)

    patch.setattr(Scheduler, "_gain", twice)
