"""Execution: a plan becomes a batch, the batch hidden states, those samples, and the samples a result. One row's fault ends that row."""

import time
from collections.abc import Callable

import numpy as np

from octavo.attention.batch import Batch
from octavo.config.config import Config
from octavo.device.arena import Arena
from octavo.errors import OctavoError
from octavo.layers.decoder import CausalLM
from octavo.protocol.columns import Int32, pack, unpack
from octavo.protocol.step import NewRow, RowError, StepMasks, StepPlan, StepResult, StepTimings
from octavo.sampling.pipeline import Pipeline
from octavo.worker.assembly import Assembly
from octavo.worker.cache import Cache
from octavo.worker.rows import EMPTY, Rows
from octavo.worker.sampling import SAMPLE_ROWS, StepSampler
from octavo.worker.span import Span
from octavo.worker.tapes import Forward, Key, Tapes


class Execution:
    """Runs plans against one model and one cache."""

    def __init__(self, config: Config, model: CausalLM, cache: Cache, rows: Rows, arena: Arena, pipeline: Pipeline) -> None:
        self._model = model
        self._cache = cache
        self._rows = rows
        self._arena = arena
        self._pipeline = pipeline
        self._assembly = Assembly(rows, config.scheduler.max_num_batched_tokens, config.scheduler.max_num_seqs)
        self._sampler = StepSampler(model, rows, arena, pipeline)
        self._tapes = Tapes(config.device.tape_rows, config.device.device, arena)

    def run(self, plan: StepPlan, wait_for_masks: Callable[[int], StepMasks | None]) -> StepResult:
        """Raises what concerns no single row."""
        errors: dict[int, RowError] = {}
        self._apply(plan, errors)
        span = self._check(plan, errors)
        self._arena.reset()
        result = StepResult(plan.step, rows=plan.rows, epochs=plan.epochs)
        started = time.monotonic()
        forward = self._forward(span) if len(span.rows) else None
        forwarded = time.monotonic()
        masks = wait_for_masks(plan.step) if plan.awaits_masks else None
        if forward is not None:
            self._sampler.run(plan, span, forward, masks, result, errors)
        else:
            result.token_counts = pack(np.zeros(len(plan.rows) // 4, np.int32))
        result.errors = list(errors.values())
        result.timings = StepTimings(forward_s=forwarded - started, sample_s=time.monotonic() - forwarded)
        return result

    def _apply(self, plan: StepPlan, errors: dict[int, RowError]) -> None:
        """Rows that end, rows that begin, blocks that come."""
        rows = self._rows
        ended = unpack(plan.ended_rows)
        if len(ended):
            for row in ended.tolist():
                if rows.epochs[row] != EMPTY:
                    self._pipeline.remove_row(row)
            rows.end(ended)
        for new in plan.new_rows:
            self._begin(new, errors)
        numbers = unpack(plan.rows)
        for group, change in enumerate(plan.groups):
            rows.append_blocks(group, change, numbers)
            self._cache.change(group, change)

    def _begin(self, new: NewRow, errors: dict[int, RowError]) -> None:
        try:
            for what, value in (("media", new.media), ("prompt embeddings", new.embeddings), ("an adapter", new.adapter)):
                if value:
                    raise ValueError(f"{what}, which this worker does not compute")
            if new.pooling is not None:
                raise ValueError("pooling, which a generating model does not give")
            self._rows.begin(new)
            self._pipeline.add_row(new)
        except (ValueError, OctavoError) as error:
            if 0 <= new.row < len(self._rows.epochs):
                self._rows.epochs[new.row] = EMPTY
            errors[new.row] = RowError(new.row, new.epoch, f"the row cannot begin: {error}")

    def _check(self, plan: StepPlan, errors: dict[int, RowError]) -> Span:
        """The rows that can be computed as planned, with the tokens of their spans settled; the others get an error."""
        state = self._rows
        numbers, epochs, starts, counts = unpack(plan.rows), unpack(plan.epochs), unpack(plan.starts), unpack(plan.counts)
        n = len(numbers)
        drafts = unpack(plan.draft_counts) if plan.draft_counts else np.zeros(n, np.int32)
        span = Span(np.arange(n, dtype=np.int32), numbers, starts, counts, unpack(plan.samples), drafts)
        if not n:
            return span
        ends = starts + counts
        faults = [
            (state.epochs[numbers] != epochs, "the worker's row belongs to another request"),
            ((counts < 1) | (ends > state.max_tokens) | (drafts >= counts), "a span that no row can have"),
            (starts > state.computed[numbers], "the tokens before the span were never computed"),
            *((have[numbers] * state.block_size < ends, f"blocks of group {g} are missing") for g, have in enumerate(state.num_blocks)),
        ]
        wrong = np.logical_or.reduce([fault for fault, _ in faults])
        for fault, message in faults:
            if fault.any():
                _note(errors, fault, numbers, epochs, message)
        right = ~wrong
        unsettled = np.zeros(n, np.bool_)
        unsettled[right] = state.resolve(
            numbers[right], (ends - drafts)[right], unpack(plan.token_sources)[right], unpack(plan.token_values)[right]
        )
        unsettled |= right & self._place_drafts(plan, numbers, ends, drafts, right)
        if unsettled.any():
            _note(errors, unsettled, numbers, epochs, "the worker does not know the tokens of the span")
        chosen = right & ~unsettled
        return span if chosen.all() else span.only(chosen)

    def _place_drafts(self, plan: StepPlan, numbers: Int32, ends: Int32, counts: Int32, right: np.ndarray) -> np.ndarray:
        """Write drafts where they would stand. True for a row whose drafts this worker should have proposed itself: it has no proposer."""
        wrong = np.zeros(len(numbers), np.bool_)
        if not plan.drafts:
            return wrong
        drafts = unpack(plan.drafts)
        first = np.cumsum(counts) - counts
        for i in np.flatnonzero(counts).tolist():
            own = drafts[first[i] : first[i] + counts[i]]
            if (own < 0).any():
                wrong[i] = True
            elif right[i]:
                self._rows.tokens[numbers[i], ends[i] - counts[i] : ends[i]] = own
        return wrong

    def _forward(self, span: Span) -> Forward:
        """Leaves each row's hidden states one behind the other."""
        batch = self._assembly.assemble(span.rows, span.starts, span.counts)
        for group, slots in enumerate(batch.slots):
            if int(slots.numpy().min()) < batch.block_size:
                raise ValueError(f"a row would write to the null block of cache group {group}")
        if batch.max_count == 1:
            makes_logits = len(span.rows) <= SAMPLE_ROWS and bool(span.samples.all())
            forward = self._tapes.run(Key(len(span.rows), batch.max_length, makes_logits), lambda: self._compute(batch, makes_logits))
        else:
            forward = self._compute(batch, False)
        self._rows.computed[span.rows] = span.starts + span.counts
        return forward

    def _compute(self, batch: Batch, makes_logits: bool) -> Forward:
        hidden = self._model(batch, self._arena)
        return Forward(hidden, self._model.logits(hidden, None, self._arena) if makes_logits else None)


def _note(errors: dict[int, RowError], fault: np.ndarray, numbers: Int32, epochs: Int32, message: str) -> None:
    for i in np.flatnonzero(fault).tolist():
        row = int(numbers[i])
        errors.setdefault(row, RowError(row, int(epochs[i]), message))
