"""Masks: the message in which a step learns what its rows may say, made when the tokens before are known and while its forward runs."""

from typing import Any

import numpy as np

from octavo.grammar.constraint import Constraint
from octavo.protocol.columns import pack
from octavo.protocol.step import StepMasks
from octavo.scheduler.assembly import Step


class MaskMaker:
    """fill_all: computes the masks of many matchers at once, as a back end does; None: one after the other."""

    def __init__(self, words: int, fill_all: Any = None) -> None:
        self._words = words
        self._fill_all = fill_all

    def make(self, step: Step) -> StepMasks:
        """Of the step's rows, whose results before it must all have been taken in. Rows that ended or restarted are left out."""
        rows: list[int] = []
        forced_rows: list[int] = []
        forced_tokens: list[int] = []
        constraints: list[Constraint] = []
        for index in step.constrained:
            request = step.requests[index]
            constraint = request.constraint
            if request.epoch != step.epochs[index] or constraint is None:
                continue
            token = constraint.forced()
            if token is not None:
                forced_rows.append(request.row)
                forced_tokens.append(token)
            elif constraint.is_binding:
                rows.append(request.row)
                constraints.append(constraint)
        masks = self._fill(constraints)
        return StepMasks(step.number, pack(rows), self._words, masks.tobytes(), pack(forced_rows), pack(forced_tokens))

    def _fill(self, constraints: list[Constraint]) -> np.ndarray:
        masks = np.empty((len(constraints), self._words), np.int32)
        plain = [index for index, each in enumerate(constraints) if each.plain_matcher is not None] if self._fill_all is not None else []
        if len(plain) == len(masks) and plain:
            self._fill_all([constraints[index].plain_matcher for index in plain], masks)
            return masks
        for each, words in zip(constraints, masks):
            each.fill(words)
        return masks
