"""Masks: what a grammar allows in this step, and tokens that are given. They come while the forward runs (StepMasks)."""

import numpy as np
import torch

from octavo.protocol.columns import Int32, unpack
from octavo.protocol.step import StepMasks


class Masks:
    """A step's masks by row."""

    def __init__(self, masks: StepMasks | None) -> None:
        self._words: dict[int, Int32] = {}
        self.forced: dict[int, int] = {}
        if masks is None:
            return
        words = unpack(masks.masks)
        for index, row in enumerate(unpack(masks.rows).tolist()):
            self._words[row] = words[index * masks.words : (index + 1) * masks.words]
        self.forced = dict(zip(unpack(masks.forced_rows).tolist(), unpack(masks.forced_tokens).tolist()))

    def __contains__(self, row: int) -> bool:
        return row in self._words

    def apply(self, logits: torch.Tensor, row: int) -> None:
        """-inf for every token of logits [vocab_size] whose bit is 0, or that the mask is too short to name."""
        words = self._words.get(row)
        if words is None:
            return
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: len(logits)]
        logits[: len(bits)].masked_fill_(torch.from_numpy(bits == 0), float("-inf"))
        logits[len(bits) :] = float("-inf")
