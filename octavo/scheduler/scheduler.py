"""The scheduler: who computes how many tokens in the next step, and what a step's result means for each request.

A request is behind by some tokens, and a step grants it some of them. Prefill, a chunk, decode, resuming after preemption and verifying
drafts are this one act.
"""

import time
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence

from octavo.config.config import Config
from octavo.errors import EngineDeadError, RequestError
from octavo.kvcache.cache import Cache
from octavo.kvcache.hashing import BlockHasher
from octavo.kvcache.residency import WatchedPool
from octavo.kvcache.specs import CachePlan
from octavo.protocol.columns import unpack
from octavo.protocol.messages import EngineOutput, EngineRequest, EngineStats, FinishReason, RequestEvent
from octavo.protocol.step import NOT_FINITE, LogprobColumns, StepPlan, StepResult
from octavo.scheduler.admission import check_size
from octavo.scheduler.assembly import Step
from octavo.scheduler.limits.limit import settle
from octavo.scheduler.limits.order import make_limits
from octavo.scheduler.logprobs import StepLogprobs, untold
from octavo.scheduler.places import find_place
from octavo.scheduler.request import WAITING, Request, Start
from octavo.scheduler.stopping import Verdict
from octavo.scheduler.waiting import WaitingQueue

NEW_ROW = -1  # instead of a number of columns: the worker is told all of them
MOST_ASIDE = 4  # requests that may be looked past in one step
STEP_NUMBERS = 1 << 30  # then they begin again, to fit in an int32 column


class Scheduler:
    """Plans steps and takes in their results, in the order of the plans. Any number of steps may be outstanding.

    drafts_per_step: drafts that the worker proposes after each sample and verifies in the next step without telling them; 0 = none.
    hash_seed: of the prefix cache's keys; None = random.
    most_overtaken: how many who come later may begin before one that does not fit yet.
    """

    most_overtaken = 16

    def __init__(
        self,
        config: Config,
        plan: CachePlan,
        clock: Callable[[], float] = time.monotonic,
        *,
        drafts_per_step: int = 0,
        hash_seed: str | None = None,
    ) -> None:
        self.config = config
        hasher = BlockHasher(config.cache.hash_algorithm, hash_seed) if config.cache.prefix_caching else None
        self.cache = Cache(plan, hasher, config.observability.cache_sample, clock)
        self.limits = make_limits(config.scheduler, self.cache, self.num_requests)
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []  # in their strict order
        self.waiting = WaitingQueue()
        self._clock = clock
        self._drafts_per_step = drafts_per_step if self.cache.can_rewind else 0
        self._outstanding: deque[Step] = deque()
        self._ended_rows: list[int] = []  # not told to the worker yet
        self._serial = 0
        self._arrivals = 0
        self._stats = EngineStats()

    # requests come and go

    def add(self, message: EngineRequest) -> None:
        """Queue a request. Raises RequestError for one that could never be computed."""
        if message.request_id in self.requests:
            raise RequestError(f"request {message.request_id!r} is here already", parameter="request_id")
        if message.sampling is None:
            raise RequestError("this model generates text; it has no pooling task", parameter="pooling")
        if message.adapter is not None:
            raise RequestError(f"adapter {message.adapter!r}: this engine serves no adapters", parameter="model")
        policy, self._arrivals = self.config.scheduler.policy, self._arrivals + 1
        order = (message.priority if policy == "priority" else 0, message.arrival_s, self._arrivals)
        request = Request(message, message.sampling, order, self.config.model.max_model_len)
        check_size(request, self.config, self.cache)
        request.tables = self.cache.tables(message.cache_salt, message.adapter)
        self._note(request, "queued")
        self.requests[request.id] = request
        self.waiting.push(request)

    def abort(self, request_id: str) -> list[EngineOutput]:
        """End a request now; its blocks are free for the next plan. Empty if there is no such request."""
        request = self.requests.get(request_id)
        return [] if request is None else [self._finish(request, (FinishReason.ABORT, None))]

    @property
    def has_work(self) -> bool:
        return bool(self.requests)

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def num_requests(self) -> int:
        return len(self.requests)

    def request_ids(self) -> list[str]:
        return list(self.requests)

    def take_stats(self) -> EngineStats:
        """Gauges now, and counts since the last call."""
        stats, self._stats = self._stats, EngineStats()
        stats.num_running, stats.num_waiting, stats.kv_cache_usage = len(self.running), len(self.waiting), self.cache.pool.usage
        if isinstance(self.cache.pool, WatchedPool):
            stays = self.cache.pool.take_stays()
            stats.block_lifetimes_s, stats.block_idles_s, stats.block_gaps_s = stays.lifetimes_s, stays.idles_s, stays.gaps_s
        return stats

    def reset_prefix_cache(self) -> bool:
        """Forget all prefixes; False, and nothing is done, while any request holds blocks."""
        return self.cache.clear_index()

    # planning

    def plan(self) -> StepPlan | None:
        """The next step, or None if there is nothing to compute before a result comes."""
        for limit in self.limits:
            limit.start_step()
        step = Step(self._serial + 1, (self._serial + 1) % STEP_NUMBERS, len(self.cache.kinds))
        self._visit(step)
        self.waiting.put_back()
        if not step.requests:
            return None
        self._serial += 1
        self._close(step)
        ended, self._ended_rows = self._ended_rows, []
        return step.plan(ended)

    def _visit(self, step: Step) -> None:
        """Everybody in one strict order: by priority, and of the same priority who runs before who waits.

        Who waits may preempt running requests of lower priority, which this step has not visited yet, if that makes room for it. A step
        that preempted admits nobody who comes after the preempted ones: it would take what they gave.
        """
        visited, is_open = 0, True
        while visited < len(self.running):
            first = self.waiting.first() if is_open else None
            border = len(self.running) if first is None else bisect_right(self.running, first.order[0], key=_priority)
            visited = self._grant_running(step, visited, border)
            if visited < len(self.running):
                assert first is not None
                is_open = self._admit(step, self.running[visited:])
                visited += first.row != WAITING
        while is_open and not step.has_preempted and self.waiting.first() is not None:
            is_open = self._admit(step, ())

    def _grant_running(self, step: Step, visited: int, border: int) -> int:
        """Grant the running requests from `visited` to `border` what they are behind by; how many have now been visited."""
        running = self.running
        while visited < border and visited < len(running):
            request = running[visited]
            visited += 1
            total = request.known + request.pending
            if total >= request.limit and request.planned >= request.known:  # it ends with what is on its way
                continue
            want = total - request.planned
            if want == 1:
                want += self._num_drafts(request, total)
            start = request.start
            start.position = request.planned
            granted, limit = settle(self.limits, request, start, want)
            while limit is not None and limit.relieved_by_preemption:
                victim = self._victim()
                if victim is request and request.outstanding:
                    break  # results on their way may let go of blocks: it is asked again when they are here
                self._preempt(step, victim)
                if victim is request:
                    break
                granted, limit = settle(self.limits, request, start, want)
            if granted:
                self._take(step, request, start, granted, request.tables.columns)
        return min(visited, len(running))

    def _victim(self) -> Request:
        """The last request that this step has not visited; when there is none, the one that asks, which is then the last."""
        return self.running[-1]

    def _num_drafts(self, request: Request, total: int) -> int:
        """How many drafts a request that is behind by one token can have verified beside it."""
        if not self.cache.can_rewind:
            return 0
        if self._drafts_per_step and request.sampled_step >= 0:
            return min(self._drafts_per_step, request.limit - total - 1)
        if request.proposals and not request.outstanding:
            return min(len(request.proposals), request.limit - total - 1)
        return 0

    def _admit(self, step: Step, lower: Sequence[Request]) -> bool:
        """Start the first who waits, or look past it if it needs more blocks than can be had. False: nobody else can begin in this step.

        lower: those who may be preempted for it.
        """
        request = self.waiting.first()
        assert request is not None
        place = find_place(self.limits, request, lower)
        if place is not None and place.victims:
            for victim in reversed(place.victims):
                self._preempt(step, victim)
            place = find_place(self.limits, request, ())  # what it can take over has changed with who holds it
        if place is None:
            return False
        if not place.granted:
            may_go_on = self._may_be_overtaken(request)
            if may_go_on:
                self.waiting.set_aside()
            return may_go_on
        self.waiting.pop()
        request.confirmed = place.start.position
        self._take(step, request, place.start, place.granted, NEW_ROW)
        step.add_row(request, place.start.position)
        insort(self.running, request, key=_order)
        self._note_start(request, place.start.position)
        for other in self.waiting.aside:
            other.overtaken += 1
        return all(other.overtaken < self.most_overtaken for other in self.waiting.aside)

    def _may_be_overtaken(self, request: Request) -> bool:
        """A few times, so that small requests go on while a large one waits for room; never once it has run and was preempted."""
        return not request.has_run and request.overtaken < self.most_overtaken and len(self.waiting.aside) < MOST_ASIDE

    def _take(self, step: Step, request: Request, start: Start, granted: int, old_columns: int) -> None:
        for limit in self.limits:
            limit.take(request, start, granted)
        step.add(request, start.position, granted, old_columns, self.cache.growing)

    def _note_start(self, request: Request, cached: int) -> None:
        self._note(request, "scheduled")
        self._stats.cached_prompt_tokens += request.count_prompt(cached)
        if request.num_cached is None:
            request.num_cached = cached
            if self.cache.hasher is not None and request.reads_prefix_cache:
                self._stats.prefix_queries += request.num_prompt
                self._stats.prefix_hits += cached

    def _close(self, step: Step) -> None:
        """Show later plans what this one writes: the blocks whose tokens are all known."""
        self.cache.close_plan()
        size = self.cache.block_size
        for request in step.requests:
            end = self._written_end(request)
            if end >= (request.tables.indexed + 1) * size:
                written = self.cache.write(request.tables, request.tokens, end, step.serial)
                if written:
                    step.written.append((request.epoch, written))
        self._outstanding.append(step)

    def _written_end(self, request: Request) -> int:
        """Tokens that are known, and computed once the steps planned so far have run."""
        return request.planned if request.planned < request.known else request.known

    def _preempt(self, step: Step, request: Request) -> None:
        """Take everything from a running request, so that this step has it; it computes it again later, before all who come after it."""
        step.has_preempted = True
        self._note(request, "preempted")
        self._stats.num_preemptions += 1
        self._restart(request)

    def _restart(self, request: Request) -> None:
        self._leave(request)
        self.waiting.push(request)

    def _leave(self, request: Request) -> None:
        """Give back the row and all that the limits gave."""
        del self.running[bisect_left(self.running, request.order, key=_order)]
        self._ended_rows.append(request.row)
        for limit in self.limits:
            limit.release(request)
        request.reset()

    # results

    def update(self, result: StepResult) -> list[EngineOutput]:
        """Take in the result of the oldest outstanding step. Rows that ended or restarted meanwhile are passed over."""
        step = self._outstanding.popleft()
        if result.step != step.number:
            raise EngineDeadError(f"the worker answered step {result.step}, and step {step.number} was next")
        self._stats.step_tokens.append(sum(step.counts))
        if result.timings is not None:
            self._stats.step_s += result.timings.ended - result.timings.started
        if result.failure is not None:
            return self._fail(step, result.failure)
        if result.rows != step.row_column or result.epochs != step.epoch_column:
            raise EngineDeadError(f"the worker's result of step {step.number} is for other rows than its plan")
        gains: list[int] = unpack(result.token_counts).tolist()
        outputs = self._fail_rows(step, result, gains)
        for _, written in step.written:
            self.cache.believe(written, step.serial)
        outputs += self._confirm(step, result, gains)
        if result.draft_counts:
            self._propose(step, result)
        return outputs

    def _confirm(self, step: Step, result: StepResult, gains: list[int]) -> list[EngineOutput]:
        """Count what was computed, hand out the tokens, end who has said enough."""
        outputs: list[EngineOutput] = []
        tokens: list[int] = unpack(result.tokens).tolist()
        logprobs = StepLogprobs(result) if result.logprobs is not None else None
        prompt_logprobs = self._prompt_logprobs(step, result) if result.prompt_logprobs else {}
        size, at, verdict = self.cache.block_size, 0, None
        for index, request in enumerate(step.requests):
            gained = gains[index]
            first, at = at, at + gained
            if request.epoch != step.epochs[index]:
                continue
            self._advance(step, index, request, gained)
            kept = 0
            if step.samples[index]:
                kept, verdict = self._gain(request, tokens[first:at])
            elif request.only_reads and request.confirmed >= request.num_prompt:
                verdict = FinishReason.LENGTH, None
            certain = request.confirmed if request.confirmed < request.known else request.known
            if certain >= (request.tables.indexed + 1) * size:
                self.cache.write(request.tables, request.tokens, certain)
            if kept or index in prompt_logprobs or verdict is not None:
                output = EngineOutput(request.id, tokens[first : first + kept])
                if logprobs is not None:
                    output.logprobs = logprobs.of(index, kept)
                if index in prompt_logprobs:
                    output.prompt_logprobs = prompt_logprobs[index]
                if request.events or not request.has_told_cached:
                    self._tell_news(request, output)
                outputs.append(output)
            if verdict is not None:
                self._finish(request, verdict, output)
                verdict = None
            elif request.confirmed >= request.tables.watch:
                self._let_go(request)
        return outputs

    def _let_go(self, request: Request) -> None:
        """By `confirmed` alone: of what is planned, drafts may be rejected, and the window is then further back."""
        self.cache.confirm(request.tables, request.tokens, request.confirmed)

    def _advance(self, step: Step, index: int, request: Request, gained: int) -> None:
        """Move the counts of a request by what its span has become. A rejected draft lowers `planned` and keeps its blocks."""
        computed, before = step.counts[index], request.confirmed
        if step.samples[index]:
            drafts = step.draft_counts[index]
            rejected = drafts + 1 - gained
            request.pending -= 1 + drafts
            request.planned -= rejected
            computed -= rejected
        request.confirmed = before + computed
        request.outstanding -= 1
        if before < request.num_prompt:
            self._stats.prompt_tokens += request.count_prompt(request.confirmed)

    def _gain(self, request: Request, new: list[int]) -> tuple[int, Verdict | None]:
        """Append tokens up to the one that ends the request: how many that are, and why it ends."""
        kept, verdict = 0, None
        for token in new:
            request.tokens.append(token)
            request.known += 1
            kept += 1
            verdict = request.stop.verdict(request.tokens, request.known)
            if verdict is not None:
                break
        self._stats.generation_tokens += kept
        return kept, verdict

    def _prompt_logprobs(self, step: Step, result: StepResult) -> dict[int, list[tuple[int, LogprobColumns]]]:
        """What is new of the prompts' log-probabilities, by index in the step."""
        told: dict[int, list[tuple[int, LogprobColumns]]] = {}
        for chunk in result.prompt_logprobs:
            index = step.epochs.index(chunk.epoch)
            request = step.requests[index]
            if request.epoch != chunk.epoch:
                continue
            for position, columns in untold(chunk, request.prompt_logprobs_told):
                told.setdefault(index, []).append((position, columns))
                request.prompt_logprobs_told = position + len(columns.counts) // 4
        return told

    def _propose(self, step: Step, result: StepResult) -> None:
        """Remember the drafts that the worker proposes, unless the request is already planned further."""
        drafts, at = unpack(result.drafts).tolist(), 0
        for request, epoch, count in zip(step.requests, step.epochs, unpack(result.draft_counts).tolist()):
            if request.epoch == epoch and not request.outstanding:
                request.proposals = drafts[at : at + count]
            at += count

    # failures

    def _fail(self, step: Step, message: str) -> list[EngineOutput]:
        """The step's writes are not to be found any more; its requests begin again, or end if it happened at the same token before."""
        outputs = []
        gone: set[int] = set()
        for later in (step, *self._outstanding):
            for _, written in later.written:
                gone |= self.cache.disown(written)
        for request, epoch in zip(step.requests, step.epochs):
            if request.epoch != epoch:
                continue
            if request.failed_at == request.known:
                outputs.append(self._finish_with_error(request, f"the step failed twice: {message}"))
            else:
                request.failed_at = request.known
                self._restart(request)
        self._restart_dependents(gone)
        return outputs

    def _fail_rows(self, step: Step, result: StepResult, gains: list[int]) -> list[EngineOutput]:
        """End the requests whose rows failed alone, and begin again with those that took over what such a row wrote."""
        errors = {error.epoch: error.message for error in result.errors}
        if 0 in gains:
            for index, (epoch, is_sample) in enumerate(zip(step.epochs, step.samples)):
                if is_sample and not gains[index]:
                    errors.setdefault(epoch, "the worker gave no token")
        if not errors:
            return []
        outputs = []
        for request, epoch in zip(step.requests, step.epochs):
            if epoch in errors and request.epoch == epoch:
                self._stats.num_corrupted += errors[epoch] == NOT_FINITE
                outputs.append(self._finish_with_error(request, errors[epoch]))
        self._restart_dependents(self._disown_rows(step, set(errors)))
        return outputs

    def _disown_rows(self, step: Step, epochs: set[int]) -> set[int]:
        gone: set[int] = set()
        for later in (step, *self._outstanding):
            for epoch, written in later.written:
                if epoch in epochs:
                    gone |= self.cache.disown(written)
        return gone

    def _restart_dependents(self, gone: set[int]) -> None:
        """Requests that took over a block that was never rightly written have computed nonsense, and written it."""
        while gone:
            dependents = [request for request in self.running if not gone.isdisjoint(request.tables.trusted)]
            epochs = {request.epoch for request in dependents}
            for request in dependents:
                self._restart(request)
            gone = self._disown_rows(self._outstanding[0], epochs) if dependents and self._outstanding else set()

    # endings

    def _finish(self, request: Request, verdict: Verdict, output: EngineOutput | None = None) -> EngineOutput:
        """End a request wherever it is; its last output says why."""
        if output is None:
            output = EngineOutput(request.id)
            self._tell_news(request, output)
        output.finish_reason, output.stop_reason = verdict
        del self.requests[request.id]
        request.is_ended = True
        if request.row == WAITING:
            self.waiting.mark_gone()
        else:
            self._leave(request)
        return output

    def _finish_with_error(self, request: Request, message: str) -> EngineOutput:
        output = self._finish(request, (FinishReason.ERROR, None))
        output.error = message
        return output

    def _tell_news(self, request: Request, output: EngineOutput) -> None:
        output.events, request.events = request.events, []
        if not request.has_told_cached and request.num_cached is not None:
            output.num_cached_tokens = request.num_cached
            request.has_told_cached = True

    def _note(self, request: Request, kind: str) -> None:
        request.events.append(RequestEvent(kind, self._clock()))


def _order(request: Request) -> tuple[int, float, int]:
    return request.order


def _priority(request: Request) -> int:
    return request.order[0]
