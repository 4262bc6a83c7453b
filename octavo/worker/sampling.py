"""Sampling a step: logits of the positions that need them, a few at a time, then tokens, drafts kept or dropped, and what is told."""

from dataclasses import dataclass

import numpy as np
import torch

from octavo.device.arena import Arena
from octavo.layers.decoder import CausalLM
from octavo.protocol.columns import Int32, pack, pack_floats, unpack, unpack_floats
from octavo.protocol.step import LogprobColumns, PromptLogprobChunk, RowError, StepMasks, StepPlan, StepResult
from octavo.sampling.pipeline import Pipeline, Sampled
from octavo.worker.rows import Rows
from octavo.worker.span import Span
from octavo.worker.tapes import Forward

SAMPLE_ROWS = 128  # positions whose logits exist at once: enough for a product at full speed, and it bounds the arena


class StepSampler:
    """Turns hidden states into the part of a StepResult that they decide, and tells the rows their new tokens."""

    def __init__(self, model: CausalLM, rows: Rows, arena: Arena, pipeline: Pipeline) -> None:
        self._model = model
        self._rows = rows
        self._arena = arena
        self._pipeline = pipeline

    def run(
        self,
        plan: StepPlan,
        span: Span,
        forward: Forward,
        masks: StepMasks | None,
        result: StepResult,
        errors: dict[int, RowError],
    ) -> None:
        """Writes into result and errors."""
        hidden, logits = forward
        row_starts = np.zeros(len(span.counts) + 1, np.int32)  # where each row's tokens begin
        np.cumsum(span.counts, out=row_starts[1:])
        self._tell_prompts(plan, span, hidden, row_starts, result, errors)
        takers = np.flatnonzero(span.samples).astype(np.int32)
        gains = _Gains(len(plan.rows) // 4)
        while len(takers):
            # round k gives the k-th token of each row that is still in it: all rows in the first, those with a right draft in the next
            depths = gains.counts[span.indices[takers]]
            places = (span.starts + span.counts - span.draft_counts)[takers] + depths
            flat = (row_starts[1:] - 1 - span.draft_counts)[takers] + depths
            drafted = depths < span.draft_counts[takers]
            drafts = self._rows.tokens[span.rows[takers], np.minimum(places, self._rows.max_tokens)]
            if logits is None:
                sampled = self._sample(hidden, flat, span.rows[takers], places, masks)
            else:  # of all rows, each of which has one token: this is the only round
                sampled = self._pipeline.sample(logits, span.rows, places, masks, self._arena)
            for index, message in sampled.errors:
                row = int(span.rows[takers[index]])
                errors[row] = RowError(row, int(self._rows.epochs[row]), message)
            right = sampled.tokens >= 0
            gains.add(span.indices[takers], sampled, right)
            kept = takers[right]
            self._rows.append_samples(span.rows[kept], places[right], sampled.tokens[right], plan.step)
            takers = takers[right & drafted & (sampled.tokens == drafts)]
        if span.draft_counts.any():
            # of a rejected draft the state in the cache is wrong: it will be written again
            gained = np.maximum(gains.counts[span.indices] - 1, 0)
            self._rows.computed[span.rows] = span.starts + span.counts - span.draft_counts + np.minimum(gained, span.draft_counts)
        gains.tell(result)

    def _sample(self, hidden: torch.Tensor, flat: Int32, rows: Int32, places: Int32, masks: StepMasks | None) -> Sampled:
        """One token for each position `flat` of the step's tokens, at most SAMPLE_ROWS of them at a time."""
        parts = []
        for start in range(0, len(flat), SAMPLE_ROWS):
            some = slice(start, start + SAMPLE_ROWS)
            with self._arena.scope():
                logits = self._model.logits(hidden, torch.from_numpy(flat[some]), self._arena)
                parts.append(self._pipeline.sample(logits, rows[some], places[some], masks, self._arena))
        if len(parts) == 1:
            return parts[0]
        firsts = range(0, len(flat), SAMPLE_ROWS)
        return Sampled(
            tokens=np.concatenate([part.tokens for part in parts]),
            logprob_rows=np.concatenate([part.logprob_rows + first for part, first in zip(parts, firsts)]).astype(np.int32),
            logprobs=_joined([part.logprobs for part in parts if part.logprobs is not None]),
            errors=[(index + first, message) for part, first in zip(parts, firsts) for index, message in part.errors],
        )

    def _tell_prompts(
        self, plan: StepPlan, span: Span, hidden: torch.Tensor, row_starts: Int32, result: StepResult, errors: dict[int, RowError]
    ) -> None:
        """Log-probabilities of the prompt tokens that follow this step's tokens, for rows that asked."""
        for i in np.flatnonzero(span.starts + 1 < self._rows.prompts[span.rows]).tolist():
            row = int(span.rows[i])
            if not self._pipeline.wants_prompt_logprobs(row):
                continue
            first = int(span.starts[i]) + 1
            last = min(int(span.starts[i] + span.counts[i]) + 1, int(self._rows.prompts[row]))
            epoch, parts = int(self._rows.epochs[row]), []
            try:
                for position in range(first, last, SAMPLE_ROWS):
                    count = min(SAMPLE_ROWS, last - position)
                    flat = np.arange(count, dtype=np.int32) + int(row_starts[i]) + position - first
                    with self._arena.scope():
                        logits = self._model.logits(hidden, torch.from_numpy(flat), self._arena)
                        tokens = self._rows.tokens[row, position : position + count]
                        parts.append(self._pipeline.prompt_logprobs(row, logits, tokens, self._arena))
            except ValueError as error:
                errors[row] = RowError(row, epoch, str(error))
                continue
            columns = _joined(parts)
            if columns is not None:
                result.prompt_logprobs.append(PromptLogprobChunk(row, epoch, first, columns))


@dataclass(slots=True)
class _Round:
    indices: Int32  # of the rows that gained a token
    tokens: Int32
    logprob_rows: Int32  # indices into the plan's rows
    logprobs: LogprobColumns | None


class _Gains:
    """The tokens that each row of a plan gained, round by round, and then as columns in the order of the rows."""

    def __init__(self, num_rows: int) -> None:
        self.counts = np.zeros(num_rows, np.int32)
        self._rounds: list[_Round] = []

    def add(self, indices: Int32, sampled: Sampled, right: np.ndarray) -> None:
        self.counts[indices[right]] += 1
        self._rounds.append(_Round(indices[right], sampled.tokens[right], indices[sampled.logprob_rows], sampled.logprobs))

    def tell(self, result: StepResult) -> None:
        result.token_counts = pack(self.counts)
        if len(self._rounds) == 1:
            only = self._rounds[0]
            result.tokens, result.logprobs = pack(only.tokens), only.logprobs
            result.logprob_rows = pack(only.logprob_rows) if only.logprobs is not None else b""
        elif self._rounds:
            # rounds are in the order of depth, so a stable sort by row puts each row's tokens one behind the other
            order = np.argsort(np.concatenate([each.indices for each in self._rounds]), kind="stable")
            result.tokens = pack(np.concatenate([each.tokens for each in self._rounds])[order])
            told = [each for each in self._rounds if each.logprobs is not None]
            columns = _joined([each.logprobs for each in told if each.logprobs is not None])
            if columns is not None:
                rows = np.concatenate([each.logprob_rows for each in told])
                order = np.argsort(rows, kind="stable")
                result.logprob_rows, result.logprobs = pack(rows[order]), _reordered(columns, order)


def measure_sampling(model: CausalLM, hidden: torch.Tensor, pipeline: Pipeline, num_rows: int, num_tokens: int, arena: Arena) -> None:
    """Take from the arena what sampling the largest step takes; hidden on the meta device."""
    for count in {min(SAMPLE_ROWS, num_rows), min(SAMPLE_ROWS, num_tokens)}:
        with arena.scope():
            model.logits(hidden, torch.empty(count, dtype=torch.int32, device="meta"), arena)
            pipeline.measure(arena, count)


def _joined(parts: list[LogprobColumns]) -> LogprobColumns | None:
    if len(parts) <= 1:
        return parts[0] if parts else None
    return LogprobColumns(*(b"".join(getattr(part, name) for part in parts) for name in ("counts", "ids", "values", "ranks")))


def _reordered(columns: LogprobColumns, order: np.ndarray) -> LogprobColumns:
    """The positions of the columns in another order."""
    ends = np.cumsum(unpack(columns.counts))
    counts = unpack(columns.counts)
    entries = np.concatenate([np.arange(ends[i] - counts[i], ends[i]) for i in order])
    ids, values, ranks = unpack(columns.ids), unpack_floats(columns.values), unpack(columns.ranks)
    return LogprobColumns(pack(counts[order]), pack(ids[entries]), pack_floats(values[entries]), pack(ranks[order]))
