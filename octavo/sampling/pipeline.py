"""Pipeline: from a step's logits to its tokens. Each row's processors in one order, then the draw, which heeds masks.

A row's token depends on its own logits, parameters, seed and position; never on the rows beside it. A row that cannot be sampled fails
alone.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from octavo.device.arena import Arena
from octavo.ops import sample as sample_op
from octavo.ops.op import choose
from octavo.protocol.columns import Int32
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import NOT_FINITE, LogprobColumns, NewRow, StepMasks
from octavo.sampling.allowed_token_ids import AllowedTokenIds
from octavo.sampling.bad_words import BadWords
from octavo.sampling.logit_bias import LogitBias
from octavo.sampling.logprobs import Logprobs, Wanted
from octavo.sampling.masks import Masks
from octavo.sampling.min_tokens import MinTokens
from octavo.sampling.penalties import Penalties
from octavo.sampling.processor import Processor
from octavo.sampling.random import uniforms

# applied in this order; temperature, min-p, top-k and top-p follow, in the op `sample`
PROCESSORS: tuple[type[Processor], ...] = (LogitBias, AllowedTokenIds, MinTokens, Penalties, BadWords)

LOGPROB_ROWS = 8  # rows whose logits are copied at a time, to be read after the draw
_GREEDY = SamplingParams(temperature=0.0)
_FAULTS = {
    sample_op.NOT_A_NUMBER: NOT_FINITE,
    sample_op.NOTHING_ALLOWED: "no token is left that the request's constraints allow",
}


@dataclass(slots=True)
class Sampled:
    """tokens: int32 [n], -1 where a row failed. logprob_rows: the indices, ascending, that the positions of `logprobs` belong to.

    errors: (index, what happened), for the rows that failed.
    """

    tokens: Int32
    logprob_rows: Int32
    logprobs: LogprobColumns | None = None
    errors: list[tuple[int, str]] = field(default_factory=list)


class Pipeline:
    """Samplers of up to `num_rows` rows.

    num_tokens: ids from there on are padding of the vocabulary: no row samples one, and log-probabilities are as if there were none.

    logprobs_mode: raw_logprobs, processed_logprobs, raw_logits or processed_logits; "raw" is before masks and processors, "processed" after
    all, with temperature and what min-p, top-k and top-p drop at -inf. mode: "fast" or "reference", as in ops.choose.
    """

    def __init__(
        self,
        *,
        num_rows: int,
        vocab_size: int,
        num_tokens: int | None = None,
        logprobs_mode: str = "raw_logprobs",
        mode: str = "fast",
        device: str = "cpu",
    ) -> None:
        self._vocab_size = vocab_size
        self._num_tokens = vocab_size if num_tokens is None else num_tokens
        self._sample = choose("sample", sample_op.Facts(vocab_size), device, mode)
        self._logprobs = Logprobs(vocab_size, self._num_tokens, logprobs_mode, mode, device)
        self.choices = {"sample": self._sample.name, "top_logprobs": self._logprobs.choice.name}
        self._temperatures = np.zeros(num_rows, np.float32)
        self._min_ps = np.zeros(num_rows, np.float32)
        self._top_ks = np.zeros(num_rows, np.int32)
        self._top_ps = np.ones(num_rows, np.float64)
        self._seeds = np.zeros(num_rows, np.uint64)
        self._counting = np.arange(num_rows, dtype=np.int32)
        self._nothing = np.zeros(num_rows, np.float64)
        self._processors: dict[int, list[Processor]] = {}
        self._wanted: dict[int, Wanted] = {}
        self._prompt_wanted: dict[int, Wanted] = {}

    def add_row(self, new: NewRow) -> None:
        """A row begins, or begins again with the tokens it had. Raises ValueError for a row number that is not one of the pipeline's."""
        row, asked = new.row, new.sampling or _GREEDY
        if not 0 <= row < len(self._seeds):
            raise ValueError(f"row {row} is not one of the pipeline's {len(self._seeds)}")
        self.remove_row(row)
        self._temperatures[row], self._min_ps[row] = asked.temperature, asked.min_p
        self._top_ks[row], self._top_ps[row] = min(asked.top_k, self._vocab_size), asked.top_p
        self._seeds[row] = new.seed % 2**64
        processors = [made for kind in PROCESSORS if (made := kind.of(new, self._vocab_size)) is not None]
        wanted, prompt_wanted = Wanted.of_samples(new.sampling, new.tells_allowed), Wanted.of_prompt(new.sampling)
        if processors:
            self._processors[row] = processors
        if wanted is not None:
            self._wanted[row] = wanted
        if prompt_wanted is not None:
            self._prompt_wanted[row] = prompt_wanted

    def remove_row(self, row: int) -> None:
        for column in (self._processors, self._wanted, self._prompt_wanted):
            column.pop(row, None)

    def measure(self, arena: Arena, num_samples: int) -> None:
        """Take from the arena what the largest step of so many samples takes."""
        with arena.scope():
            arena.empty(min(num_samples, LOGPROB_ROWS), self._vocab_size, dtype=torch.float32)

    @property
    def tells_prompts(self) -> bool:
        """Whether any row wants log-probabilities of its prompt."""
        return bool(self._prompt_wanted)

    def wants_prompt_logprobs(self, row: int) -> bool:
        return row in self._prompt_wanted

    def prompt_logprobs(self, row: int, logits: torch.Tensor, next_tokens: Int32, arena: Arena | None = None) -> LogprobColumns:
        """One position for each of logits [n, vocab_size]: how likely was the prompt's own next token, and which were likelier.

        The logits are destroyed. Raises ValueError where they are not numbers.
        """
        if not bool(torch.isfinite(logits.amax(-1)).all()):
            raise ValueError(_FAULTS[sample_op.NOT_A_NUMBER])
        self._drop_padding(logits)
        self._logprobs.add(logits, next_tokens, self._prompt_wanted[row])
        return self._logprobs.take()

    def sample(self, logits: torch.Tensor, rows: Int32, positions: npt.NDArray[Any], masks: StepMasks | None, arena: Arena) -> Sampled:
        """One token for each of logits [n, vocab_size] float32, which is destroyed.

        rows: the row of each, all different. positions: where its token will stand in the row. masks: of this step.
        """
        self._drop_padding(logits)
        step = _Step(logits, rows, np.asarray(positions), Masks(masks, self._vocab_size), np.empty(len(rows), np.int32))
        recorded: list[int] = []
        if not self._wanted:
            self._process(step, self._counting[: len(rows)])
            self._draw(step, self._counting[: len(rows)], keep_weights=False)
        else:
            recorded = self._sample_and_record(step, arena)
        errors: list[tuple[int, str]] = []
        if int(step.tokens.min(initial=0)) < 0:
            errors = [(int(index), _FAULTS[int(step.tokens[index])]) for index in np.flatnonzero(step.tokens < 0)]
            step.tokens[step.tokens < 0] = -1
        if self._processors:
            self._tell_processors(step)
        return Sampled(step.tokens, np.array(recorded, np.int32), self._logprobs.take() if recorded else None, errors)

    def _sample_and_record(self, step: "_Step", arena: Arena) -> list[int]:
        """Some rows want log-probabilities: the others are drawn at once, those a few at a time. The indices that have some."""
        wanting = np.fromiter((row in self._wanted for row in step.rows.tolist()), np.bool_, len(step.rows))
        if not wanting.all():
            indices = np.flatnonzero(~wanting).astype(np.int32)
            self._process(step, indices)
            self._draw(step, indices, keep_weights=False)
        recorded = []
        indices = np.flatnonzero(wanting).astype(np.int32)
        for start in range(0, len(indices), LOGPROB_ROWS):
            recorded += self._record(step, indices[start : start + LOGPROB_ROWS], arena)
        return recorded

    def _tell_processors(self, step: "_Step") -> None:
        for index, row in enumerate(step.rows.tolist()):
            token = int(step.tokens[index])
            for processor in self._processors.get(row, ()) if token >= 0 else ():
                processor.note(token)

    def _drop_padding(self, logits: torch.Tensor) -> None:
        if self._num_tokens < self._vocab_size:
            logits[:, self._num_tokens :] = float("-inf")

    def _process(self, step: "_Step", indices: Int32) -> None:
        """Processors; a row that is not finite is left alone, or they could hide it. Where logits are looked at after them, masks too."""
        if not self._processors and not (self._logprobs.is_processed and step.masks.bits is not None):
            return
        for index in indices.tolist():
            row = int(step.rows[index])
            processors = self._processors.get(row, ())
            is_masked = self._logprobs.is_processed and row in step.masks
            if not processors and not is_masked:
                continue
            logits = step.logits[index]
            if bool(logits.isnan().any()):
                continue  # the draw sees it
            if is_masked:
                step.masks.apply(logits, row)
            for processor in processors:
                processor.apply(logits, int(step.positions[index]))

    def _draw(self, step: "_Step", indices: Int32, keep_weights: bool) -> None:
        rows = step.rows if len(indices) == len(step.rows) else step.rows[indices]
        tokens = np.empty(len(indices), np.int32)
        temperatures = self._temperatures[rows]
        if temperatures.any():
            drawn = uniforms(self._seeds[rows], step.positions[indices])
        else:  # nothing is drawn, the largest logits are taken
            drawn = self._nothing[: len(rows)]
        columns = (temperatures, self._min_ps[rows], self._top_ks[rows], self._top_ps[rows], drawn)
        masks = step.masks
        places = None if masks.bits is None else masks.places(rows)
        told = [torch.from_numpy(column) for column in (tokens, indices, *columns)]
        self._sample.implementation(told[0], step.logits, *told[1:], keep_weights, masks.bits, places)
        step.tokens[indices] = tokens
        if masks.forced:
            for place, row in enumerate(rows.tolist()):
                if row in masks.forced and tokens[place] != sample_op.NOT_A_NUMBER:
                    step.tokens[indices[place]] = masks.forced[row]

    def _record(self, step: "_Step", indices: Int32, arena: Arena) -> list[int]:
        """Sample rows that want log-probabilities, and gather these. Returns the indices that have some."""
        processed = self._logprobs.is_processed
        with arena.scope():
            kept = arena.empty(len(indices), self._vocab_size, dtype=torch.float32)
            if not processed:
                torch.index_select(step.logits, 0, torch.from_numpy(indices), out=kept)
            self._process(step, indices)
            if processed:
                torch.index_select(step.logits, 0, torch.from_numpy(indices), out=kept)
            self._draw(step, indices, keep_weights=processed)
            recorded = []
            for place, index in enumerate(indices.tolist()):
                if step.tokens[index] < 0:
                    continue
                row, temperature = int(step.rows[index]), float(self._temperatures[step.rows[index]])
                if processed and temperature > 0:
                    kept[place].div_(temperature).masked_fill_(step.logits[index] == 0, float("-inf"))
                if self._wanted[row].of_allowed:
                    step.masks.apply(kept[place], row)
                self._logprobs.add(kept[place : place + 1], step.tokens[index : index + 1], self._wanted[row])
                recorded.append(index)
        return recorded


@dataclass(slots=True)
class _Step:
    logits: torch.Tensor
    rows: Int32
    positions: npt.NDArray[Any]
    masks: Masks
    tokens: Int32
