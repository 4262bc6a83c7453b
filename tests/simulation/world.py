"""A schedule: one engine core with an echo worker, driven by seeded arrivals, aborts and faults, and judged by the oracle."""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from octavo.config.config import Config
from octavo.engine.core import EngineCore
from octavo.kvcache.hashing import BlockHasher
from octavo.kvcache.plan import blocks_for, plan_cache
from octavo.kvcache.specs import LayerState, StateSpec
from octavo.protocol.columns import pack
from octavo.protocol.messages import Abort, Add, EngineOutput, EngineOutputs, EngineRequest, FinishReason, Reply, Stop, ToCore
from octavo.protocol.sampling_params import RepetitionDetectionParams, RequestOutputKind, SamplingParams, StructuredOutputsParams
from octavo.protocol.step import StepPlan
from octavo.scheduler.assembly import Step
from octavo.scheduler.limits.rows import Rows
from octavo.scheduler.request import Request
from tests.simulation.configs import EOS, VOCABULARY, make_config
from tests.simulation.constraints import REFUSAL, REFUSED, SimulatedConstraints, asked
from tests.simulation.echo_worker import ERROR, START, EchoExecutor, EchoWorker, Faults, ints, mix
from tests.simulation.oracle import answer
from tests.simulation.queue_judge import QueueJudge, WrongAnswerError, order_of

MOST_TURNS = 3000  # a schedule takes some dozens; one that is stuck takes for ever

FULL = StateSpec(kind="full", bytes_per_token=2)
RECURRENT = StateSpec(kind="recurrent", bytes_per_sequence=8)


@dataclass
class Tally:
    """What happened in many schedules: a simulation in which nothing happens proves nothing."""

    counts: Counter[str] = field(default_factory=Counter)


class ScriptedInbox:
    """Messages that come at their turn of the loop; when all is said and done, Stop."""

    def __init__(self, messages: list[tuple[int, ToCore]]) -> None:
        self._messages = sorted(messages, key=lambda entry: entry[0])
        self._next = 0
        self._turn = 0

    def poll(self) -> list[ToCore]:
        self._turn += 1
        if self._turn > MOST_TURNS:
            raise WrongAnswerError("stuck: the loop turns and nothing ends")
        due = []
        while self._next < len(self._messages) and self._messages[self._next][0] <= self._turn:
            due.append(self._messages[self._next][1])
            self._next += 1
        return due

    def get(self, timeout_s: float) -> ToCore | None:
        if self._next == len(self._messages):
            return Stop()
        self._turn, message = self._messages[self._next]
        self._next += 1
        return message


class RecordingHasher(BlockHasher):
    """Remembers which digests a block with a given key must hold."""

    def __init__(self) -> None:
        super().__init__("xxhash", "simulation")
        self.digests: dict[bytes, list[int]] = {self.root: [START]}

    def hash(self, parent: bytes, tokens: bytes, extra: tuple[Any, ...] = ()) -> bytes:
        key = super().hash(parent, tokens, extra)
        if key not in self.digests:
            digest, digests = self.digests[parent][-1], []
            for token in ints(tokens):
                digest = mix(digest, token)
                digests.append(digest)
            self.digests[key] = digests
        return key


class WatchedCore(EngineCore):
    """Looks at every plan beside the scheduler that made it."""

    windows: list[tuple[int, StateSpec]]  # group, spec
    judge: QueueJudge
    constraints: SimulatedConstraints

    def plan(self) -> StepPlan | None:
        self.constraints.turn()
        scheduler = self.scheduler
        was_running = list(scheduler.running)
        plan = super().plan()
        preempted = [self._order(request) for request in was_running if request.row < 0]
        if plan is None:
            return None
        step = scheduler._outstanding[-1]
        begun = {new.request_id for new in plan.new_rows}
        if preempted:
            if any(self._order(request)[0] >= min(preempted)[0] for request in step.requests if request.id in begun):
                raise WrongAnswerError("a step that preempted admitted a request of no higher priority")
            if max(map(self._order, step.requests)) > min(preempted):
                raise WrongAnswerError("a request was preempted before one that comes after it")
        for requests in ([r for r in step.requests if r.id in begun], [r for r in step.requests if r.id not in begun]):
            if (orders := list(map(self._order, requests))) != sorted(orders):
                raise WrongAnswerError("requests were not visited in their order")
        priorities = [self._order(request)[0] for request in step.requests]
        if priorities != sorted(priorities) or len(set(step.epochs)) != len(step.epochs):
            raise WrongAnswerError("requests were not visited once each, by priority")
        self.judge.judge(plan, step, begun, bool(preempted))
        self._check_columns(plan)
        self._check_windows(step)
        return plan

    def _order(self, request: Request) -> tuple[int, float]:
        return order_of(request, self.config)

    def _check_windows(self, step: Step) -> None:
        """What the next token can read is still held, even where the worker would not notice that it was let go."""
        cache = self.scheduler.cache
        for request in step.requests:
            for group, spec in self.windows:
                column = max(0, request.confirmed - spec.window + 1) // cache.block_size
                blocks = request.tables.blocks[group]
                if column * cache.block_size < request.confirmed and not (blocks[column] and cache.pool.references[blocks[column]]):
                    raise WrongAnswerError(f"{request.id}: column {column} of group {group} is in the window, and was let go")

    def _check_columns(self, plan: StepPlan) -> None:
        config, scheduler = self.config.scheduler, self.scheduler
        counts, starts = ints(plan.counts), ints(plan.starts)
        if sum(counts) > config.max_num_batched_tokens or len(scheduler.running) > config.max_num_seqs:
            raise WrongAnswerError("a step beyond the limits")
        if min(counts) < 1:
            raise WrongAnswerError("a row without tokens")
        size = self.config.cache.block_size
        for request, start, count in zip(scheduler._outstanding[-1].requests, starts, counts):
            end = start + count
            if not config.chunked_prefill and start < request.num_prompt and end < request.num_prompt:
                raise WrongAnswerError("a prompt in pieces")
            if config.chunked_prefill and scheduler.cache.saves_snapshots and end // size > start // size and end % size:
                raise WrongAnswerError("a recurrent state was carried over a border")
            threshold = config.long_prefill_token_threshold
            if threshold and config.chunked_prefill and len(scheduler.requests) > 1 and count > threshold:
                raise WrongAnswerError("a long chunk beside others")


class Schedule:
    """Everything about one seed: the configuration, the requests, and what came of them."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.is_burst = rng.random() < 0.3  # requests that share a long prefix come right after each other
        self.states = self._draw_states()
        self.config = self._draw_config()
        self.has_drafts = rng.random() < 0.4
        self.proposals_told = rng.random() < 0.5
        self.grammar_rng = random.Random(seed + 2)
        self.constrained_share = self.grammar_rng.choice([0.0, 0.0, 0.3, 1.0])
        self.faults = Faults(random.Random(seed + 1))
        if rng.random() < (0.5 if self.is_burst else 0.2):
            self.faults.step_rate = rng.choice([0.03, 0.25])
        if rng.random() < 0.2:
            self.faults.row_rate = 0.02
        self.requests = self._draw_requests()
        self.outputs: dict[str, list[EngineOutput]] = defaultdict(list)
        self.aborted: set[str] = set()
        self.stats = Counter[str]()
        self.gauges: Any = None
        self.core: WatchedCore

    # drawing

    def _draw_states(self) -> list[LayerState]:
        rng = self.rng
        sliding = StateSpec(kind="sliding", bytes_per_token=2, window=rng.choice([2, 3, 5, 8, 13]))
        shapes = [[FULL], [FULL, FULL], [FULL, sliding], [sliding, sliding, FULL], [sliding], [FULL, RECURRENT], [RECURRENT]]
        shapes += [[FULL, sliding, RECURRENT], [FULL, sliding]]
        return [LayerState(f"layers.{i}", spec) for i, spec in enumerate(rng.choice(shapes))]

    def _draw_config(self) -> Config:
        rng = self.rng
        length, chunked = rng.choice([12, 16, 24, 32]), rng.random() < 0.8
        budget = rng.choice([3, 8, 16, 64])
        if not chunked:
            budget = max(budget, length)
        size = rng.choice([1, 2, 2, 3, 4, 4, 5, 8, 16])
        plan = plan_cache(self.states, size, 0, num_blocks_override=2)
        least = blocks_for(plan, length, budget) + 1
        return make_config(
            max_model_len=length,
            block_size=size,
            num_blocks_override=int(least * rng.choice([1, 1.2, 1.5, 2, 4])),
            prefix_caching=self.is_burst or rng.random() < 0.8,
            max_num_seqs=rng.choice([1, 2, 4, 4, 8, 8]),
            max_num_batched_tokens=budget,
            chunked_prefill=chunked,
            long_prefill_token_threshold=rng.choice([0, 0, 0, 5]),
            prefill_schedule_interval=rng.choice([1, 1, 1, 2, 3]),
            policy=rng.choice(["fcfs", "priority"]),
            reserve_full_prompt=rng.random() < 0.6,
            watermark=rng.choice([0.0, 0.0, 0.1]),
            overlapped=rng.random() < 0.65,
        )

    def _draw_requests(self) -> list[EngineRequest]:
        rng, longest = self.rng, self.config.model.max_model_len - 1
        stems = [[rng.randrange(VOCABULARY) for _ in range(longest)] for _ in range(rng.choice([1, 1, 2]))]
        return [self._draw_request(i, stems, longest) for i in range(rng.randint(2, 8))]

    def _draw_request(self, number: int, stems: list[list[int]], longest: int) -> EngineRequest:
        rng = self.rng
        shared = rng.randint(longest // 2 if self.is_burst else 0, longest) if self.is_burst or rng.random() < 0.7 else 0
        prompt = rng.choice(stems)[:shared]
        prompt = prompt + [rng.randrange(VOCABULARY) for _ in range(rng.randint(0 if prompt else 1, max(1, min(8, longest - len(prompt)))))]
        only_reads = rng.random() < 0.06
        prompt = (prompt + [1] * (rng.random() < 0.3))[: longest + 1] if only_reads else prompt[:longest]
        max_tokens = 0 if only_reads else rng.choice([1, 4, 8, 16, None])
        sampling = SamplingParams(
            max_tokens=max_tokens,
            min_tokens=rng.choice([0, 0, 3]) if max_tokens is None or max_tokens >= 3 else 0,
            stop_token_ids=[rng.randrange(1, VOCABULARY)] if rng.random() < 0.15 else None,
            repetition_detection=RepetitionDetectionParams(2, 1, 2) if rng.random() < 0.15 else None,
            skip_reading_prefix_cache=True if rng.random() < 0.05 else None,
            prompt_logprobs=0 if only_reads or rng.random() < 0.06 else None,
            logprobs=1 if rng.random() < 0.1 else None,
            structured_outputs=self._draw_grammar() if self.grammar_rng.random() < self.constrained_share else None,
            output_kind=RequestOutputKind.DELTA,
        )
        return EngineRequest(
            request_id=f"r{number}",
            token_ids=pack(prompt),
            sampling=sampling,
            arrival_s=float(number),
            seed=rng.choice([0, 0, 5]),
            eos_token_ids=[EOS] if rng.random() < 0.25 else [],
            priority=rng.randrange(3),
            cache_salt=None if self.is_burst else rng.choice([None, None, None, "a"]),
        )

    def _draw_grammar(self) -> StructuredOutputsParams:
        return asked(REFUSED if self.grammar_rng.random() < 0.04 else self.grammar_rng.randrange(100))

    def _messages(self) -> list[tuple[int, ToCore]]:
        rng, messages = self.rng, []
        spread = rng.choice([2, 4] if self.is_burst else [1, 5, 10])
        for request in self.requests:
            turn = rng.randint(1, spread)
            messages.append((turn, Add(request)))
            if rng.random() < 0.12:
                self.aborted.add(request.request_id)
                messages.append((turn + rng.randint(0, 12), Abort([request.request_id])))
        return messages

    # running

    def run(self) -> "Schedule":
        drafts = self.rng.randint(1, 3) if self.has_drafts else 0
        executor = EchoExecutor(self.states, self.faults, drafts, self.proposals_told, is_encoding=self.rng.random() < 0.1)
        self.core = core = WatchedCore(self.config, executor, ScriptedInbox(self._messages()), self._receive, _no_reply)
        core.start()
        core.constraints = core.scheduler._constraints = SimulatedConstraints(self.grammar_rng)  # type: ignore[assignment]
        groups = executor.worker.plan.groups
        core.windows = [(number, group.spec) for number, group in enumerate(groups) if group.spec.window]
        self.hasher = RecordingHasher()
        if core.scheduler.cache.hasher is not None:
            core.scheduler.cache.hasher = self.hasher
        if drafts and not self.proposals_told and self.config.scheduler.overlapped and core.scheduler.cache.can_rewind:
            core.scheduler._drafts_per_step = drafts
        self.rng.shuffle(core.scheduler.limits)
        core.scheduler.most_overtaken = self.rng.choice([0, 1, 2, 16])
        core.judge = QueueJudge(core.scheduler, self.config)
        core.run()
        self._check_answers()
        self._check_end(executor.worker)
        return self

    def _receive(self, outputs: EngineOutputs) -> None:
        for output in outputs.outputs:
            self.outputs[output.request_id].append(output)
        if (stats := outputs.stats) is not None:
            self.gauges = stats
            for name in ("num_preemptions", "prefix_hits", "generation_tokens", "prompt_tokens", "cached_prompt_tokens"):
                self.stats[name] += getattr(stats, name)

    # judging

    def _check_answers(self) -> None:
        for request in self.requests:
            try:
                self._check_answer(request, self.outputs[request.request_id])
            except WrongAnswerError as error:
                complaints = "; ".join(self.core.executor.worker.complaints[:3])  # type: ignore[attr-defined]
                raise WrongAnswerError(f"{request.request_id}: {error} ({complaints})") from None

    def _check_answer(self, request: EngineRequest, outputs: list[EngineOutput]) -> None:
        expected, reason, stop_reason = answer(request, self.config.model.max_model_len)
        tokens = [token for output in outputs for token in output.token_ids]
        ends = [output for output in outputs if output.finish_reason is not None]
        if len(ends) != 1 or outputs[-1] is not ends[0]:
            raise WrongAnswerError(f"ended {len(ends)} times")
        end = ends[0]
        if end.finish_reason == FinishReason.ERROR:
            self._check_error(request, end)
        elif end.finish_reason == FinishReason.ABORT:
            if request.request_id not in self.aborted:
                raise WrongAnswerError("aborted, and nobody asked for it")
        elif (tokens, end.finish_reason, end.stop_reason) != (expected, reason, stop_reason):
            raise WrongAnswerError(f"said {tokens} ({end.finish_reason}, {end.stop_reason}), not {expected} ({reason}, {stop_reason})")
        if tokens != expected[: len(tokens)]:
            raise WrongAnswerError(f"said {tokens}, not {expected}")
        self._check_columns(request, outputs, tokens, is_whole=end.finish_reason not in (FinishReason.ABORT, FinishReason.ERROR))
        self._check_cached(request, outputs, tokens)

    def _check_error(self, request: EngineRequest, end: EngineOutput) -> None:
        if end.error == ERROR and request.request_id in self.faults.failed_rows:
            return
        if end.error == REFUSAL and request.sampling is not None and request.sampling.structured_outputs == asked(REFUSED):
            return
        if end.error is not None and end.error.startswith("the step failed twice") and self.faults.failed_steps > 1:
            return
        raise WrongAnswerError(f"failed with {end.error!r}, and nothing was wrong with it")

    def _check_columns(self, request: EngineRequest, outputs: list[EngineOutput], tokens: list[int], is_whole: bool) -> None:
        assert request.sampling is not None
        if request.sampling.logprobs is not None:
            told = [token for output in outputs if output.logprobs for token in ints(output.logprobs.ids)[::2]]
            if told != tokens:
                raise WrongAnswerError(f"log-probabilities of {told}, not of {tokens}")
        if request.sampling.prompt_logprobs is not None and is_whole:
            positions, prompt = 1, ints(request.token_ids)
            for output in outputs:
                for position, columns in output.prompt_logprobs:
                    ids = ints(columns.ids)[::2]
                    if position != positions or ids != prompt[position : position + len(ids)]:
                        raise WrongAnswerError(f"prompt log-probabilities at {position}, not {positions}")
                    positions += len(ids)
            if positions != len(prompt):
                raise WrongAnswerError(f"prompt log-probabilities up to {positions} of {len(prompt)}")

    def _check_cached(self, request: EngineRequest, outputs: list[EngineOutput], tokens: list[int]) -> None:
        """A hit has a source: another request with the same salt and prefix."""
        told = [output.num_cached_tokens for output in outputs if output.num_cached_tokens is not None]
        if len(told) > 1 or (tokens and outputs[0].num_cached_tokens is None):
            raise WrongAnswerError(f"cached tokens were told as {told}")
        cached = told[0] if told else 0
        if cached == 0:
            return
        assert request.sampling is not None
        prompt = ints(request.token_ids)
        sources = [other for other in self.requests if other is not request and other.cache_salt == request.cache_salt]
        longest = self.config.model.max_model_len
        if not any((ints(other.token_ids) + answer(other, longest)[0])[:cached] == prompt[:cached] for other in sources):
            raise WrongAnswerError(f"{cached} tokens were cached, and nobody had computed them")
        if request.sampling.skip_reading_prefix_cache or request.sampling.prompt_logprobs is not None or cached >= len(prompt):
            raise WrongAnswerError(f"{cached} of {len(prompt)} tokens were cached, which this request cannot use")

    def _check_end(self, worker: EchoWorker) -> None:
        scheduler = self.core.scheduler
        pool, index = scheduler.cache.pool, scheduler.cache.index
        if pool.num_free != pool.num_blocks - 1 or any(pool.references) or pool.usage:
            raise WrongAnswerError(f"{pool.num_blocks - 1 - pool.num_free} blocks are still held")
        rows = next(limit for limit in scheduler.limits if isinstance(limit, Rows))
        if len(set(rows._free)) != self.config.scheduler.max_num_seqs or scheduler.running or len(scheduler.waiting):
            raise WrongAnswerError("rows are still taken")
        gauges = self.gauges
        if gauges is None or gauges.num_running or gauges.num_waiting or gauges.kv_cache_usage:
            raise WrongAnswerError(f"gauges at the end: {gauges}")
        if index.keys.keys() != {block for blocks in index.blocks for block in blocks.values()}:
            raise WrongAnswerError("the index contradicts itself")
        for block, (group, key) in index.keys.items():
            digests = self.hasher.digests[key]
            is_state = worker.kinds[group] == "recurrent"
            holds = [worker.states[block]] if is_state else worker.cells[block]
            if worker.owners[block] != group or holds != (digests[-1:] if is_state else digests):
                raise WrongAnswerError(f"block {block} of group {group} is in the index under a prefix that it does not hold")
        generated = sum(len(output.token_ids) for outputs in self.outputs.values() for output in outputs)
        if self.stats["generation_tokens"] != generated:
            raise WrongAnswerError(f"{self.stats['generation_tokens']} tokens were counted, and {generated} given")
        self._check_prompt_tokens()

    def _check_prompt_tokens(self) -> None:
        """A prompt whose request came to a token is counted once, whatever was computed again; of another one any part may be."""
        counted = self.stats["prompt_tokens"] + self.stats["cached_prompt_tokens"]
        begun = {name for name, outputs in self.outputs.items() if any(output.token_ids for output in outputs)}
        least = sum(len(request.token_ids) // 4 for request in self.requests if request.request_id in begun)
        most = sum(len(request.token_ids) // 4 for request in self.requests)
        if not least <= counted <= most:
            raise WrongAnswerError(f"{counted} prompt tokens were counted, and {least} to {most} given")

    def count(self, tally: Tally) -> None:
        counts = tally.counts
        counts["schedules"] += 1
        counts["steps"] += self.core.executor.num_steps  # type: ignore[attr-defined]
        counts["requests"] += len(self.requests)
        counts["preemptions"] += self.stats["num_preemptions"]
        counts["preemptions by priority"] += self.core.judge.num_preempted
        counts["overtakings"] += sum(self.core.judge.overtaken.values())
        counts["hits"] += self.stats["prefix_hits"]
        counts["rejected drafts"] += self.core.executor.worker.rejected  # type: ignore[attr-defined]
        counts["masks"] += self.core.constraints.num_masks
        counts["forced tokens"] += self.core.constraints.num_forced
        counts["failed steps"] += self.faults.failed_steps
        counts["failed rows"] += len(self.faults.failed_rows)
        for outputs in self.outputs.values():
            counts[outputs[-1].finish_reason.label] += 1  # type: ignore[union-attr]
            counts["resumed"] += sum(event.kind == "preempted" for output in outputs for event in output.events)


def _no_reply(reply: Reply) -> None:
    raise AssertionError("nobody called")


def run_schedules(first: int, last: int, tally: Tally | None = None) -> None:
    """Run the seeds first .. last-1. Raises for the first that goes wrong, naming it."""
    for seed in range(first, last):
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        if tally is not None:
            schedule.count(tally)
