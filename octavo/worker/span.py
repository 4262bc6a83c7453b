"""Span: which rows a step computes, and which tokens of each, as columns."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.protocol.columns import Int32


@dataclass(slots=True)
class Span:
    """Columns of a plan's rows, or of those of them that can be computed."""

    indices: Int32  # into the plan's columns
    rows: Int32
    starts: Int32
    counts: Int32
    samples: Int32
    draft_counts: Int32

    def only(self, chosen: npt.NDArray[np.bool_]) -> "Span":
        columns = (self.indices, self.rows, self.starts, self.counts, self.samples, self.draft_counts)
        return Span(*(column[chosen] for column in columns))
