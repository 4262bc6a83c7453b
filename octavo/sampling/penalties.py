"""Penalties: tokens that were there already become less likely (or more, with negative numbers).

repetition_penalty looks at prompt and output: a positive logit is divided by it, a negative one multiplied (Keskar et al., CTRL, 2019).
frequency_penalty, times the number of occurrences, and presence_penalty, once, are subtracted for tokens of the output alone.
"""

from typing import Self

import torch

from octavo.protocol.columns import unpack
from octavo.protocol.step import NewRow


class Penalties:
    """Each different token has a place in two columns, its id and its occurrences in the output; they grow by doubling."""

    def __init__(self, repetition: float, frequency: float, presence: float, prompt: list[int], output: list[int]) -> None:
        self._repetition, self._frequency, self._presence = repetition, frequency, presence
        seen = dict.fromkeys([*prompt, *output]) if repetition != 1.0 else dict.fromkeys(output)
        self._places = {token: place for place, token in enumerate(seen)}
        room = max(64, 2 * len(self._places))
        self._ids = torch.zeros(room, dtype=torch.int64)
        self._counts = torch.zeros(room, dtype=torch.float32)
        self._ids[: len(self._places)] = torch.tensor(list(self._places), dtype=torch.int64)
        for token in output:
            self._counts[self._places[token]] += 1

    @classmethod
    def of(cls, new: NewRow, vocab_size: int) -> Self | None:
        asked = new.sampling
        if asked is None or (asked.repetition_penalty == 1.0 and asked.frequency_penalty == 0.0 and asked.presence_penalty == 0.0):
            return None
        tokens = unpack(new.token_ids).tolist()
        prompt = [token for token in tokens[: new.num_prompt_tokens] if 0 <= token < vocab_size]
        output = [token for token in tokens[new.num_prompt_tokens :] if 0 <= token < vocab_size]
        return cls(asked.repetition_penalty, asked.frequency_penalty, asked.presence_penalty, prompt, output)

    def apply(self, logits: torch.Tensor, position: int) -> None:
        size = len(self._places)
        if not size:
            return
        ids, counts = self._ids[:size], self._counts[:size]
        values = logits[ids]
        if self._repetition != 1.0:
            values = torch.where(values > 0, values / self._repetition, values * self._repetition)
        values -= self._frequency * counts
        values -= self._presence * (counts > 0)
        logits[ids] = values

    def note(self, token: int) -> None:
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids = torch.cat([self._ids, torch.zeros_like(self._ids)])
            self._counts = torch.cat([self._counts, torch.zeros_like(self._counts)])
        self._ids[place] = token
        self._counts[place] += 1
