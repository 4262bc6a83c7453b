"""Embedding: each token's row of the table, times a factor. The table may be the panels of a tied output head: one copy for both."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """layout: "rows" [rows, width], or "panels" as linear's implementation packed a weight [rows, width].

    scale: rounded to dtype before it multiplies (gemma multiplies by such a sqrt(width)).
    """

    rows: int
    width: int
    dtype: torch.dtype
    layout: Literal["rows", "panels"] = "rows"
    scale: float = 1.0


class Reference:
    """out [tokens, width] of the table's dtype, ids int32 [tokens]; an id outside 0 .. rows-1 gives the nearest row."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._scale = torch.tensor(facts.scale, dtype=facts.dtype)

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None if facts.layout == "rows" else f"layout {facts.layout} belongs to one implementation of linear"

    @staticmethod
    def pack(weight: torch.Tensor, facts: Facts) -> torch.Tensor:
        return weight

    def __call__(self, out: torch.Tensor, ids: torch.Tensor, table: torch.Tensor) -> None:
        rows = table[ids.long().clamp(0, self.facts.rows - 1)]
        out.copy_(rows if self.facts.scale == 1.0 else rows * self._scale)


@dataclass(frozen=True, slots=True)
class Case:
    facts: Facts
    tokens: int

    def __str__(self) -> str:
        f = self.facts
        return f"{self.tokens}of{f.rows}x{f.width}-{str(f.dtype)[6:]}-{f.layout}{f'-scale{f.scale:g}' if f.scale != 1 else ''}"

    def table(self) -> torch.Tensor:
        """[rows, width]."""
        return torch.randn(self.facts.rows, self.facts.width, generator=torch.Generator().manual_seed(1)).to(self.facts.dtype)

    def ids(self) -> torch.Tensor:
        """The last row, then any; the third is far outside, the fourth below 0."""
        ids = torch.randint(0, self.facts.rows, (self.tokens,), generator=torch.Generator().manual_seed(2), dtype=torch.int32)
        ids[:1] = self.facts.rows - 1
        ids[2:3], ids[3:4] = 2**31 - 1, -5
        return ids


def cases() -> Iterator[Case]:
    """Both layouts, odd widths, rows that do not fill a panel, with and without a factor."""
    for dtype in (torch.float32, torch.bfloat16):
        layouts: tuple[Literal["rows"], Literal["panels"]] = ("rows", "panels")
        for layout in layouts:
            yield Case(Facts(rows=50, width=576, dtype=dtype, layout=layout), 7)
            yield Case(Facts(rows=33, width=37, dtype=dtype, layout=layout, scale=640**0.5), 300)
            yield Case(Facts(rows=1, width=3, dtype=dtype, layout=layout), 5)
            yield Case(Facts(rows=7, width=16, dtype=dtype, layout=layout), 0)
    yield Case(Facts(rows=9, width=24, dtype=torch.float16, scale=4.9), 5)
