"""Logprobs: columns of ids, values and ranks, gathered position by position."""

from dataclasses import dataclass, field

import numpy as np
import torch

from octavo.ops.op import choose
from octavo.ops.top_logprobs import Facts
from octavo.protocol.columns import Float32, Int32, pack, pack_floats
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import LogprobColumns

MODES = ("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits")


@dataclass(frozen=True, slots=True)
class Wanted:
    """num_top: so many of the likeliest tokens; -1 for all. listed: further token ids."""

    num_top: int
    listed: tuple[int, ...] = ()

    @classmethod
    def of_samples(cls, asked: SamplingParams | None) -> "Wanted | None":
        if asked is None or (asked.logprobs is None and not asked.logprob_token_ids):
            return None
        return cls(asked.logprobs or 0, tuple(asked.logprob_token_ids or ()))

    @classmethod
    def of_prompt(cls, asked: SamplingParams | None) -> "Wanted | None":
        return None if asked is None or asked.prompt_logprobs is None else cls(asked.prompt_logprobs)


@dataclass(slots=True)
class _Columns:
    counts: list[int] = field(default_factory=list)
    ids: list[Int32] = field(default_factory=list)
    values: list[Float32] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)


class Logprobs:
    """Gathers the entries of positions, then gives them as columns."""

    def __init__(self, vocab_size: int, num_tokens: int, mode: str, ops: str, device: str) -> None:
        if mode not in MODES:
            raise ValueError(f"logprobs_mode must be one of {', '.join(MODES)}, not {mode!r}")
        self._num_tokens = num_tokens  # as many can be told of: the rest of the vocabulary is padding
        self.is_processed = mode.startswith("processed")
        self._normalises = mode.endswith("logprobs")
        self.choice = choose("top_logprobs", Facts(vocab_size), device, ops)
        self._columns = _Columns()

    def add(self, logits: torch.Tensor, tokens: Int32, wanted: Wanted) -> None:
        """The positions of logits [n, vocab_size], at which tokens [n] stand."""
        num_top = self._num_tokens if wanted.num_top < 0 else min(wanted.num_top, self._num_tokens)
        width = 1 + num_top + len(wanted.listed)
        values, ids = torch.empty(1, width), torch.empty(1, width, dtype=torch.int32)
        ranks = torch.empty(1, dtype=torch.int32)
        columns = self._columns
        for index in range(len(tokens)):
            token = torch.from_numpy(tokens[index : index + 1])
            self.choice.implementation(
                values, ids, ranks, logits[index : index + 1], token, num_top, list(wanted.listed), normalise=self._normalises
            )
            columns.counts.append(width)
            columns.ids.append(ids[0].numpy().copy())
            columns.values.append(values[0].numpy().copy())
            columns.ranks.append(int(ranks[0]))

    def take(self) -> LogprobColumns:
        """What was gathered; the next gathering begins."""
        columns, self._columns = self._columns, _Columns()
        return LogprobColumns(
            pack(columns.counts),
            pack(np.concatenate([np.empty(0, np.int32), *columns.ids])),
            pack_floats(np.concatenate([np.empty(0, np.float32), *columns.values])),
            pack(columns.ranks),
        )
