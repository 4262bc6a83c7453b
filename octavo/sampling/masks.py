"""Masks: what a grammar allows in this step, and tokens that are given. They come while the forward runs (StepMasks)."""

import numpy as np
import torch

from octavo.ops.sample import forbid
from octavo.protocol.columns import Int32, unpack
from octavo.protocol.step import StepMasks

NONE = -1  # instead of the place of a mask


class Masks:
    """A step's masks by row. bits: int32 [masks, words], as wide as the vocabulary; None where no row has one."""

    def __init__(self, masks: StepMasks | None, vocab_size: int) -> None:
        self._places: dict[int, int] = {}
        self.forced: dict[int, int] = {}
        self.bits: torch.Tensor | None = None
        if masks is None:
            return
        self.forced = dict(zip(unpack(masks.forced_rows).tolist(), unpack(masks.forced_tokens).tolist()))
        self._places = {row: place for place, row in enumerate(unpack(masks.rows).tolist())}
        if self._places:
            # of what the masks are too short to name nothing is allowed
            bits = np.zeros((len(self._places), max(masks.words, -(-vocab_size // 32))), np.int32)
            bits[:, : masks.words] = unpack(masks.masks).reshape(-1, masks.words)
            self.bits = torch.from_numpy(bits)

    def places(self, rows: Int32) -> torch.Tensor:
        """Where in `bits` the mask of each row is; NONE for those that have none."""
        return torch.tensor([self._places.get(row, NONE) for row in rows.tolist()], dtype=torch.int32)

    def __contains__(self, row: int) -> bool:
        return row in self._places

    def apply(self, logits: torch.Tensor, row: int) -> None:
        """-inf for every token of logits [vocab_size] that is not allowed, for who wants to see the logits before the draw."""
        place = self._places.get(row)
        if place is not None and self.bits is not None:
            forbid(logits, self.bits[place])
