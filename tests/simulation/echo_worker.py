"""The echo worker: a worker whose cache holds, instead of keys and values, a digest of all tokens up to each position.

Its next token is a function of the prefix. It reads nothing but the StepPlan and its cells, so that a wrong block table, a wrong share, a
stale block or a lost recomputation shows at once. All rows of a step read before any of them writes.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.config.config import Config
from octavo.kvcache.specs import CachePlan, LayerState
from octavo.kvcache.worker_facts import WorkerFacts
from octavo.protocol.columns import pack, pack_floats
from octavo.protocol.step import (
    STORED,
    GroupChange,
    LogprobColumns,
    NewRow,
    PromptLogprobChunk,
    RowError,
    StepMasks,
    StepPlan,
    StepResult,
    StepTimings,
)
from tests.simulation.configs import VOCABULARY

MASK = (1 << 61) - 1
START = 1  # the digest of no tokens
GARBAGE = -1  # in a cell that a failed step wrote
UNCHANGED = GroupChange()
WRONG_TOKEN = VOCABULARY + 1  # what a row says whose cache is not as it should be
ERROR = "not a number"


class WrongPlanError(AssertionError):
    """What the scheduler sent cannot be right."""


def ints(column: bytes) -> list[int]:
    """A column as a list; for the short ones of a simulation faster than through numpy."""
    return memoryview(column).cast("i").tolist() if column else []


def mix(digest: int, token: int) -> int:
    return (digest * 1_000_003 + token + 7) & MASK


def sample(digest: int, seed: int) -> int:
    """The token that follows a prefix."""
    return (((digest ^ seed) * 0x9E3779B97F4A7C15) >> 40) % VOCABULARY


def sample_of(allowed: list[int], digest: int, seed: int) -> int:
    """The same where only some tokens may follow."""
    return allowed[sample(digest, seed) % len(allowed)]


def propose(digest: int, seed: int, count: int) -> list[int]:
    """Drafts for what follows: mostly right, for a while."""
    drafts = []
    for _ in range(count):
        token = sample(digest, seed)
        if (digest >> 7) % 3 == 0:
            token = (token + 1) % VOCABULARY
        drafts.append(token)
        digest = mix(digest, token)
    return drafts


@dataclass
class Faults:
    """How often things go wrong, and what did."""

    rng: random.Random
    step_rate: float = 0.0
    row_rate: float = 0.0
    failed_steps: int = 0
    failed_rows: set[str] = field(default_factory=set)

    @property
    def are_possible(self) -> bool:
        return self.step_rate > 0 or self.row_rate > 0


class Row:
    def __init__(self, new: NewRow) -> None:
        self.new = new
        self.epoch = new.epoch
        self.tokens = ints(new.token_ids)
        self.tables = [ints(column) for column in new.block_tables]
        self.chain = [START]  # entry i: the digest of the first i tokens
        for token in self.tokens:
            self.chain.append(mix(self.chain[-1], token))
        self.sampled_step = STORED
        self.proposals: list[int] = []
        self.is_broken = False

    def append(self, tokens: list[int]) -> None:
        for token in tokens:
            self.tokens.append(token)
            self.chain.append(mix(self.chain[-1], token))


class Span:
    """One row's part in a step: tokens start .. end, `drafts` of them not known to be right."""

    __slots__ = ("digests", "drafts", "end", "row", "start")

    def __init__(self, row: Row, start: int, count: int, drafts: list[int]) -> None:
        self.row = row
        self.start = start
        self.end = start + count
        self.drafts = drafts
        if not drafts:
            self.digests = row.chain[start + 1 : self.end + 1]
            return
        digests = row.chain[start + 1 : self.end - len(drafts) + 1]
        for token in drafts:
            digests.append(mix(digests[-1], token))
        self.digests = digests


class EchoWorker:
    """proposals_told: drafts are told in results; else the worker keeps `drafts_per_step` of them for itself."""

    def __init__(self, plan: CachePlan, faults: Faults, drafts_per_step: int, proposals_told: bool) -> None:
        self.plan = plan
        self.faults = faults
        self.drafts_per_step = drafts_per_step
        self.proposals_told = proposals_told
        self.size = plan.block_size
        self.cells = [[0] * self.size for _ in range(plan.num_blocks)]
        self.states = [0] * plan.num_blocks
        self.owners = [-1] * plan.num_blocks  # the group that wrote a block last
        self.rows: dict[int, Row] = {}
        self.kinds = [group.spec.kind for group in plan.groups]
        self.windows = [group.spec.window for group in plan.groups]
        self.rejected = 0
        self.allowed: dict[int, list[int]] = {}  # of this step, by row
        self.forced: dict[int, int] = {}
        self.complaints: list[str] = []

    def run(self, plan: StepPlan, masks: StepMasks | None = None) -> StepResult:
        """masks: those of this step, if it awaits any."""
        self._take_masks(masks)
        self._change_rows(plan)
        rows = ints(plan.rows)
        self._change_groups(plan, rows)
        spans = self._spans(plan, rows)
        result = StepResult(plan.step, rows=plan.rows, epochs=plan.epochs, timings=StepTimings(1.0, 1.5, 0.4, 0.1))
        faults = self.faults
        if faults.step_rate and faults.rng.random() < faults.step_rate:
            faults.failed_steps += 1
            for span in spans:
                self._spoil(span)
            self._save(plan, spans)
            result.failure = "the kernel raised"
            return result
        for span in spans:
            self._read(span)
        for span in spans:
            if faults.row_rate and faults.rng.random() < faults.row_rate:
                self._spoil(span)
                faults.failed_rows.add(span.row.new.request_id)
                result.errors.append(RowError(span.row.new.row, span.row.epoch, ERROR))
            elif span.row.is_broken:
                self._spoil(span)
            else:
                self._write(span)
        self._check_writers(plan, spans)
        self._save(plan, spans)
        self._answer(plan, spans, result)
        return result

    def _take_masks(self, masks: StepMasks | None) -> None:
        self.allowed, self.forced = {}, {}
        if masks is None:
            return
        words = memoryview(masks.masks).cast("i").tolist() if masks.masks else []
        for row, word in zip(ints(masks.rows), words, strict=True):
            self.allowed[row] = [token for token in range(VOCABULARY) if word >> token & 1]
        self.forced = dict(zip(ints(masks.forced_rows), ints(masks.forced_tokens), strict=True))

    def _change_rows(self, plan: StepPlan) -> None:
        for row in ints(plan.ended_rows):
            if self.rows.pop(row, None) is None:
                raise WrongPlanError(f"row {row} ended, and was not there")
        for new in plan.new_rows:
            if new.row in self.rows:
                raise WrongPlanError(f"row {new.row} begins, and is taken")
            self.rows[new.row] = Row(new)
            expected = set(new.stop_ids)
            if new.sampling is None or not set(new.sampling.stop_token_ids or ()) <= expected:
                raise WrongPlanError("a stop token is not among the row's stop_ids")

    def _change_groups(self, plan: StepPlan, rows: list[int]) -> None:
        for group, change in enumerate(plan.groups):
            if change == UNCHANGED:
                continue
            if change.append_rows:
                blocks, at = ints(change.append_blocks), 0
                for index, count in zip(ints(change.append_rows), ints(change.append_counts)):
                    self.rows[rows[index]].tables[group] += blocks[at : at + count]
                    at += count
            for block in ints(change.zeroings):
                self.states[block], self.owners[block] = START, group
            for source, destination in zip(ints(change.copy_sources), ints(change.copy_destinations)):
                self.cells[destination] = list(self.cells[source])
                self.states[destination], self.owners[destination] = self.states[source], self.owners[source]
            for index, block in zip(ints(change.restore_rows), ints(change.restore_blocks)):
                live = self.rows[rows[index]].tables[group][0]
                self.states[live], self.owners[live] = self.states[block], self.owners[block]

    def _spans(self, plan: StepPlan, rows: list[int]) -> list[Span]:
        drafts, at, spans = ints(plan.drafts), 0, []
        columns = (plan.epochs, plan.starts, plan.counts, plan.samples, plan.token_sources, plan.draft_counts)
        for number, epoch, start, count, is_sample, source, num_drafts in zip(rows, *(ints(column) for column in columns)):
            row = self.rows[number]
            if row.epoch != epoch:
                raise WrongPlanError(f"row {number} is of epoch {row.epoch}, not {epoch}")
            given, at = drafts[at : at + num_drafts], at + num_drafts
            if num_drafts and given[0] == -1:
                given = row.proposals[:num_drafts]
            given += [0] * (num_drafts - len(given))
            spans.append(self._span(row, start, count, is_sample, source, given))
        return spans

    def _span(self, row: Row, start: int, count: int, is_sample: int, source: int, drafts: list[int]) -> Span:
        if row.is_broken:
            return Span(row, start, count, [])
        if source != STORED:
            if source != row.sampled_step:
                raise WrongPlanError(f"{row.new.request_id}: the last sample was in step {row.sampled_step}, not in {source}")
            late = start - (len(row.tokens) - 1)
            if not 0 <= late <= self.drafts_per_step * 2:
                raise WrongPlanError(f"{row.new.request_id}: the sample stands at {len(row.tokens) - 1}, and the span starts at {start}")
            start -= late
        known = start + count - len(drafts)
        assert row.new.sampling is not None
        is_due = known == len(row.tokens) and row.new.sampling.max_tokens != 0
        if known > len(row.tokens) or is_due != bool(is_sample):
            raise WrongPlanError(f"{row.new.request_id}: a span to {known} of {len(row.tokens)} tokens, sampled: {is_sample}")
        if count - len(drafts) < 1 or (drafts and not is_sample):
            raise WrongPlanError(f"{row.new.request_id}: {count} tokens with {len(drafts)} drafts, sampled: {is_sample}")
        return Span(row, start, count, drafts)

    # the cache

    def _read(self, span: Span) -> None:
        row = span.row
        if row.is_broken:
            return
        complaint = self._complaint(span)
        if complaint is not None:
            complaint = f"{row.new.request_id}, tokens {span.start} to {span.end}: {complaint}"
            self.complaints.append(complaint)
            if not self.faults.are_possible:
                raise WrongPlanError(complaint)
            row.is_broken = True  # legitimate if it took over what a failed step wrote; then nobody will believe the result

    def _complaint(self, span: Span) -> str | None:
        row, size, start = span.row, self.size, span.start
        for group, kind in enumerate(self.kinds):
            table = row.tables[group]
            if kind == "recurrent":
                if self.owners[table[0]] != group or self.states[table[0]] != row.chain[start]:
                    return f"group {group}: the live state is not that of {start} tokens"
                continue
            first = max(0, start - self.windows[group] + 1) if kind == "sliding" else 0
            for column in range(first // size, -(-start // size)):
                low, high = max(first, column * size), min(start, (column + 1) * size)
                block = table[column]
                if block == 0 or self.owners[block] != group:
                    return f"group {group}, column {column}: block {block} is not this group's"
                if self.cells[block][low - column * size : high - column * size] != row.chain[low + 1 : high + 1]:
                    return f"group {group}, column {column}: block {block} holds another prefix"
        return None

    def _write(self, span: Span) -> None:
        for group, kind in enumerate(self.kinds):
            table = span.row.tables[group]
            if kind == "recurrent":
                if span.drafts:
                    raise WrongPlanError("drafts for a state that cannot be rewound")
                self.states[table[0]], self.owners[table[0]] = span.digests[-1], group
                continue
            for position, digest in enumerate(span.digests, span.start):
                block = table[position // self.size]
                self.cells[block][position % self.size] = digest
                self.owners[block] = group

    def _spoil(self, span: Span) -> None:
        """What a step leaves in the cache when it fails."""
        span.row.is_broken = True
        for group, kind in enumerate(self.kinds):
            table = span.row.tables[group]
            if kind == "recurrent":
                self.states[table[0]] = GARBAGE
                continue
            for position in range(span.start, span.end):
                block = table[position // self.size]
                self.cells[block][position % self.size] = GARBAGE
                self.owners[block] = group

    def _check_writers(self, plan: StepPlan, spans: list[Span]) -> None:
        """No two rows write a block, and none writes what another one restores: rows of a step may be computed in any order."""
        writers: dict[int, Row] = {}
        restored = {block for change in plan.groups for block in ints(change.restore_blocks)}
        for span in spans:
            for group, kind in enumerate(self.kinds):
                table = span.row.tables[group]
                columns = range(1) if kind == "recurrent" else range(span.start // self.size, -(-span.end // self.size))
                for column in columns:
                    block = table[column]
                    if not 0 < block < self.plan.num_blocks:
                        raise WrongPlanError(f"{span.row.new.request_id} writes block {block}")
                    if block in restored or writers.setdefault(block, span.row) is not span.row:
                        raise WrongPlanError(f"{span.row.new.request_id} writes block {block}, which is another row's too")

    def _save(self, plan: StepPlan, spans: list[Span]) -> None:
        for group, change in enumerate(plan.groups):
            for index, block in zip(ints(change.save_rows), ints(change.save_blocks)):
                live = spans[index].row.tables[group][0]
                self.states[block], self.owners[block] = self.states[live], group

    # the answer

    def _answer(self, plan: StepPlan, spans: list[Span], result: StepResult) -> None:
        gains, tokens, draft_counts, drafts = [], [], [], []
        failed = {error.epoch for error in result.errors}
        logprob_rows, logprob_ids = [], []
        for index, (span, is_sample) in enumerate(zip(spans, ints(plan.samples))):
            row = span.row
            self._tell_prompt(span, result)
            gained: list[int] = []
            if is_sample and row.epoch not in failed:
                gained = [WRONG_TOKEN] if row.is_broken else self._verify(span)
                if not row.is_broken:
                    row.append(gained)
                    row.sampled_step = plan.step
                    row.proposals = propose(row.chain[-1], row.new.seed, self.drafts_per_step)
            gains.append(len(gained))
            tokens += gained
            told = row.proposals if gained and self.proposals_told and not row.is_broken else []
            draft_counts.append(len(told))
            drafts += told
            assert row.new.sampling is not None
            if row.new.sampling.logprobs is not None:
                logprob_rows += [index] * len(gained)
                logprob_ids += gained
        result.token_counts, result.tokens = pack(gains), pack(tokens)
        if self.proposals_told:
            result.draft_counts, result.drafts = pack(draft_counts), pack(drafts)
        if logprob_rows:
            result.logprob_rows, result.logprobs = pack(logprob_rows), _columns(logprob_ids)

    def _verify(self, span: Span) -> list[int]:
        """The drafts that are what would have been sampled, and the sample after them."""
        row = span.row
        digest, gained = row.chain[span.end - len(span.drafts)], []
        number = row.new.row
        if number in self.forced:
            return [self.forced[number]]
        if number in self.allowed:
            return [sample_of(self.allowed[number], digest, row.new.seed)]
        for draft in span.drafts:
            token = sample(digest, row.new.seed)
            if token != draft:
                break
            gained.append(token)
            digest = mix(digest, token)
        self.rejected += len(span.drafts) - len(gained)
        return [*gained, sample(digest, row.new.seed)]

    def _tell_prompt(self, span: Span, result: StepResult) -> None:
        row = span.row
        assert row.new.sampling is not None
        last = min(span.end, row.new.num_prompt_tokens - 1)
        if row.new.sampling.prompt_logprobs is not None and span.start + 1 <= last:
            chunk = _columns(row.tokens[span.start + 1 : last + 1])
            result.prompt_logprobs.append(PromptLogprobChunk(row.new.row, row.epoch, span.start + 1, chunk))


def _columns(ids: list[int]) -> LogprobColumns:
    """Two entries a position: its own token and another one."""
    flat = [entry for token in ids for entry in (token, token + 1)]
    return LogprobColumns(pack([2] * len(ids)), pack(flat), pack_floats([-float(entry) for entry in flat]), pack([1] * len(ids)))


class EchoExecutor:
    """An Executor that runs a step only when its result is asked for: as late as a worker can be."""

    def __init__(self, states: list[LayerState], faults: Faults, drafts_per_step: int, proposals_told: bool, is_encoding: bool) -> None:
        self.states = states
        self.faults = faults
        self.drafts_per_step = drafts_per_step
        self.proposals_told = proposals_told
        self.is_encoding = is_encoding
        self.steps: deque[StepPlan] = deque()
        self.masks: deque[StepMasks] = deque()
        self.num_steps = 0
        self.worker: EchoWorker

    def start(self, config: Config) -> WorkerFacts:
        return WorkerFacts(
            states=self.states,
            vocab_size=VOCABULARY,
            device_total_bytes=1 << 30,
            device_available_bytes=1 << 30,
            budget_bytes=1 << 29,
            runtime_bytes=1 << 20,
            weights_bytes=1 << 20,
            arena_bytes=1 << 20,
            cache_budget_bytes=1 << 20,
        )

    def initialize_cache(self, plan: CachePlan) -> None:
        self.worker = EchoWorker(plan, self.faults, self.drafts_per_step, self.proposals_told)

    def submit(self, plan: StepPlan) -> None:
        self.steps.append(msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=StepPlan) if self.is_encoding else plan)

    def submit_masks(self, masks: StepMasks) -> None:
        self.masks.append(msgspec.msgpack.decode(msgspec.msgpack.encode(masks), type=StepMasks) if self.is_encoding else masks)

    def collect(self, timeout_s: float | None = None) -> StepResult | None:
        self.num_steps += 1
        plan = self.steps.popleft()
        result = self.worker.run(plan, self._masks_of(plan) if plan.awaits_masks else None)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=StepResult) if self.is_encoding else result

    def _masks_of(self, plan: StepPlan) -> StepMasks:
        if not self.masks or self.masks[0].step != plan.step:
            raise WrongPlanError(f"step {plan.step} awaits masks, and those that came are of {[masks.step for masks in self.masks]}")
        return self.masks.popleft()

    def call(self, method: str, *arguments: Any) -> Any:
        assert not self.steps, "a call while a step is outstanding"
        return [method, *arguments]

    def shutdown(self) -> None:
        self.steps.clear()
        self.masks.clear()
