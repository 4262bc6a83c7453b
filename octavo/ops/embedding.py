"""Embedding: each token's row of the table, times a factor. The table may be the panels of a tied output head: one copy for both."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from octavo.ops import weights, weights_cases
from octavo.ops.weights import Layout, Tensors


@dataclass(frozen=True, slots=True)
class CodedPanels:
    """Coded rows of a layout, as linear's implementation packed them."""

    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """layout: "rows" [rows, width], "panels" as linear's implementation packed a weight [rows, width], or the layout of coded rows.

    scale: rounded to dtype before it multiplies (gemma multiplies by such a sqrt(width)).
    """

    rows: int
    width: int
    dtype: torch.dtype
    layout: Literal["rows", "panels"] | Layout | CodedPanels = "rows"
    scale: float = 1.0


class Reference:
    """out [tokens, width] of dtype, ids int32 [tokens]; an id outside 0 .. rows-1 gives the nearest row. Coded rows are rounded."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._scale = torch.tensor(facts.scale, dtype=facts.dtype)

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        is_packed = facts.layout == "panels" or isinstance(facts.layout, CodedPanels)
        return "panels belong to one implementation of linear" if is_packed else None

    @staticmethod
    def pack(weight: torch.Tensor | Tensors, facts: Facts) -> torch.Tensor | Tensors:
        return weight

    def __call__(self, out: torch.Tensor, ids: torch.Tensor, table: torch.Tensor | Tensors) -> None:
        facts, chosen = self.facts, ids.long().clamp(0, self.facts.rows - 1)
        if isinstance(table, tuple):
            assert not isinstance(facts.layout, (str, CodedPanels))
            coded = weights.select_rows(facts.layout, table, chosen)
            rows = weights.decode(facts.layout, coded, len(chosen), facts.width).to(facts.dtype)
        else:
            rows = table[chosen]
        out.copy_(rows if self.facts.scale == 1.0 else rows * self._scale)


@dataclass(frozen=True, slots=True)
class Case:
    facts: Facts
    tokens: int

    def __str__(self) -> str:
        f = self.facts
        layout = f.layout if isinstance(f.layout, str) else weights_cases.name(self._coded())
        layout += "-panels" if isinstance(f.layout, CodedPanels) else ""
        return f"{self.tokens}of{f.rows}x{f.width}-{str(f.dtype)[6:]}-{layout}{f'-scale{f.scale:g}' if f.scale != 1 else ''}"

    def table(self) -> torch.Tensor | Tensors:
        """[rows, width], or the tensors of the layout."""
        if not isinstance(self.facts.layout, str):
            return weights_cases.random(self._coded(), self.facts.rows, self.facts.width)
        return torch.randn(self.facts.rows, self.facts.width, generator=torch.Generator().manual_seed(1)).to(self.facts.dtype)

    def numbers(self) -> torch.Tensor:
        """The table's numbers, [rows, width], rounded to the dtype."""
        facts, table = self.facts, self.table()
        if isinstance(table, torch.Tensor):
            return table
        return weights.decode(self._coded(), table, facts.rows, facts.width).to(facts.dtype)

    def _coded(self) -> Layout:
        layout = self.facts.layout
        assert not isinstance(layout, str)
        return layout.layout if isinstance(layout, CodedPanels) else layout

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
    for coded in (*weights_cases.LAYOUTS[:3], weights_cases.LAYOUTS[8], weights.Blocks("Q8_0"), weights.Blocks("Q6_K")):
        for dtype in (torch.float32, torch.bfloat16):
            width = 2 * weights_cases.step(coded) if weights_cases.step(coded) > 1 else 75
            yield Case(Facts(rows=23, width=width, dtype=dtype, layout=coded, scale=1.0 if dtype == torch.float32 else 9.75), 6)
    packed = [weights.Blocks(name) for name in ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K")]
    for coded in (weights_cases.LAYOUTS[0], weights_cases.LAYOUTS[4], *packed):
        width = 2 * max(weights_cases.step(coded), 32)
        for scale in (1.0, 9.75):
            yield Case(Facts(rows=23, width=width, dtype=torch.bfloat16, layout=CodedPanels(coded), scale=scale), 6)
