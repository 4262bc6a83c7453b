"""Rows for tests of sampling: a NewRow from parameters, and a pipeline that holds some."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from octavo.device.arena import Arena
from octavo.protocol.columns import pack, unpack, unpack_floats
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import LogprobColumns, NewRow, StepMasks
from octavo.sampling.pipeline import Pipeline, Sampled

PROMPT = [3, 3, 5]
OUTPUTS_AT = len(PROMPT)  # position of the first token of output


def new_row(row: int = 0, *, output: list[int] | None = None, seed: int = 0, stop_ids: Sequence[int] = (), **parameters: Any) -> NewRow:
    """A row of PROMPT and `output`; parameters as of SamplingParams (temperature 0 unless given)."""
    sampling = SamplingParams(**{"temperature": 0.0, "max_tokens": 100, **parameters})
    tokens = pack([*PROMPT, *(output or [])])
    return NewRow(row, 0, f"r{row}", tokens, len(PROMPT), 0, [], sampling=sampling, seed=seed, stop_ids=list(stop_ids))


def pipeline_of(rows: list[NewRow], vocab_size: int = 17, **options: Any) -> Pipeline:
    pipeline = Pipeline(num_rows=64, vocab_size=vocab_size, **options)
    for row in rows:
        pipeline.add_row(row)
    return pipeline


def arena_for(pipeline: Pipeline, num_samples: int) -> Arena:
    """An arena of exactly the size that `measure` says."""
    measured = Arena()
    pipeline.measure(measured, num_samples)
    return Arena(torch.empty(measured.high_water, dtype=torch.uint8))


def sample(
    pipeline: Pipeline, logits: torch.Tensor, rows: list[int], positions: list[int] | None = None, masks: StepMasks | None = None
) -> Sampled:
    places = np.array(positions if positions is not None else [len(PROMPT)] * len(rows))
    return pipeline.sample(logits.clone(), np.array(rows, np.int32), places, masks, arena_for(pipeline, len(rows)))


def noise(num_rows: int, vocab_size: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 2


def entries(columns: LogprobColumns) -> list[tuple[list[int], list[float], int]]:
    """(ids, values, rank) of each position."""
    ids, values, found, start = unpack(columns.ids).tolist(), unpack_floats(columns.values).tolist(), [], 0
    for count, rank in zip(unpack(columns.counts).tolist(), unpack(columns.ranks).tolist(), strict=True):
        found.append((ids[start : start + count], values[start : start + count], rank))
        start += count
    assert start == len(ids) == len(values)
    return found
