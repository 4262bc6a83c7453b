"""Attention over a paged cache: causal, of any mix of prompts, chunks and single tokens, each query token over its own context.

softmax(scale * q k^T + mask) v, Vaswani et al., 2017. Grouped queries (Ainslie et al., 2023): query head h reads kv head
h * num_kv_heads // num_heads.
Softcap: cap * tanh(score / cap). Sinks: one more logit a head, which takes its share of the softmax and adds nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from octavo.config.cache_formats import FORMATS
from octavo.ops.pages import Layout, Scales, plain_format, scales_of

_QUERY_TOKENS = 32  # of a row that the reference takes at once, which bounds its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Shapes, dtypes and mathematics of one layer. window: a token sees itself and the window - 1 before it; 0 = all before it."""

    num_heads: int
    layout: Layout
    dtype: torch.dtype
    scale: float
    window: int = 0
    softcap: float = 0.0
    has_sinks: bool = False


class Reference:
    """out, query [tokens, num_heads, head_dim], any strides but 1 in the last dimension.

    Row r owns tokens row_starts[r] .. row_starts[r + 1], the last of its context of lengths[r]; both int32. Its token at position p lies in
    block tables[r, p // block_size]; tables int32 [rows, any width], of which only entries that a query of this call sees are read.
    pages uint8 [num_blocks, page_bytes]. sinks float32 [num_heads], where has_sinks. scales float32 [2]: the layer's.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    @staticmethod
    def scratch_size(facts: Facts, num_tokens: int, num_rows: int, max_length: int) -> int:
        """Bytes that torch allocates on the way, at most."""
        page = facts.layout
        tokens = min(num_tokens, _QUERY_TOKENS)
        width = page.dtype.itemsize if page.format.is_plain else 4 * 4  # codes, and what becomes of them on the way to float32
        context = max_length * page.num_kv_heads * page.head_dim * (2 * width + 2 * 4 * (facts.num_heads // page.num_kv_heads) + 16)
        return context + tokens * facts.num_heads * (max_length * 4 * 4 + page.head_dim * 4 * 3)

    def __call__(
        self,
        out: torch.Tensor,
        query: torch.Tensor,
        pages: torch.Tensor,
        tables: torch.Tensor,
        row_starts: torch.Tensor,
        lengths: torch.Tensor,
        sinks: torch.Tensor | None = None,
        scales: torch.Tensor | None = None,
    ) -> None:
        starts, factors = row_starts.tolist(), scales_of(scales)
        for row, length in enumerate(lengths.tolist()):
            for start in range(starts[row], starts[row + 1], _QUERY_TOKENS):
                end = min(start + _QUERY_TOKENS, starts[row + 1])
                first = length - (starts[row + 1] - start)
                out[start:end] = self._tokens(query[start:end], first, pages, tables[row], sinks, factors)

    def _tokens(
        self, query: torch.Tensor, first: int, pages: torch.Tensor, table: torch.Tensor, sinks: torch.Tensor | None, scales: Scales
    ) -> torch.Tensor:
        """The result of the consecutive tokens `query` of one row, the first of which is at position `first`."""
        facts, page = self.facts, self.facts.layout
        at = first + torch.arange(len(query))  # [tokens]
        earliest = max(0, first - facts.window + 1) if facts.window else 0
        context = torch.arange(earliest, first + len(query))
        slots = table[context // page.block_size].long() * page.block_size + context % page.block_size
        both = page.read(pages, slots, scales)
        key, value = (x.to(torch.float32).repeat_interleave(facts.num_heads // page.num_kv_heads, 1) for x in both)
        score = torch.einsum("qhd,khd->hqk", query.to(torch.float32), key) * facts.scale
        if facts.softcap:
            score = facts.softcap * torch.tanh(score / facts.softcap)
        seen = context[None, :] <= at[:, None]
        if facts.window:
            seen &= context[None, :] > at[:, None] - facts.window
        score.masked_fill_(~seen, -torch.inf)
        if sinks is not None:
            score = torch.cat((score, sinks.to(torch.float32)[:, None, None].expand(-1, len(query), 1)), -1)
        weight = torch.softmax(score, -1)[..., : len(context)]
        return torch.einsum("hqk,khd->qhd", weight, value).to(query.dtype)


@dataclass(frozen=True, slots=True)
class Case:
    """Rows as (tokens in this step, context after it). What no query may read is poison: NaN pages, and blocks that do not exist."""

    facts: Facts
    rows: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        f, page = self.facts, self.facts.layout
        rows = "+".join(f"{count}of{length}" for count, length in self.rows)
        extras = f"{f'-window{f.window}' if f.window else ''}{f'-cap{f.softcap:g}' if f.softcap else ''}{'-sinks' if f.has_sinks else ''}"
        dtypes = f"{str(f.dtype)[6:]}-{page.format.name}"
        return f"{rows}-{f.num_heads}/{page.num_kv_heads}x{page.head_dim}-block{page.block_size}-{dtypes}{extras}"

    @property
    def num_tokens(self) -> int:
        return sum(count for count, _ in self.rows)

    def query(self) -> torch.Tensor:
        shape = (self.num_tokens, self.facts.num_heads, self.facts.layout.head_dim)
        return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(self.facts.dtype)

    def row_starts(self) -> torch.Tensor:
        counts = torch.tensor([0, *(count for count, _ in self.rows)])
        return counts.cumsum(0).to(torch.int32)

    def lengths(self) -> torch.Tensor:
        return torch.tensor([length for _, length in self.rows], dtype=torch.int32)

    def sinks(self) -> torch.Tensor | None:
        if not self.facts.has_sinks:
            return None
        return torch.randn(self.facts.num_heads, generator=torch.Generator().manual_seed(8)) * 2

    def scales(self) -> torch.Tensor:
        """Of the layer; numbers that are no powers of 2."""
        return torch.tensor([0.037, 0.051])

    def cache(self) -> tuple[torch.Tensor, torch.Tensor]:
        """pages and tables: row r's key and value of position p are the same whatever the block size and the other rows."""
        facts, page = self.facts, self.facts.layout
        size = page.block_size
        width = max(-(-length // size) for _, length in self.rows) + 2
        num_blocks = 2 + sum(-(-length // size) for _, length in self.rows)
        order = (2 + torch.randperm(num_blocks - 2, generator=torch.Generator().manual_seed(9))).tolist()
        pages = torch.full((num_blocks, page.page_bytes), 0xFF, dtype=torch.uint8)  # NaN in every float format
        tables = torch.full((len(self.rows), width), 1 << 30, dtype=torch.int32)
        for row, (count, length) in enumerate(self.rows):
            first_seen = max(0, length - count - facts.window + 1) if facts.window else 0
            live = range(first_seen // size, -(-length // size))
            tables[row, : live.start] = torch.arange(live.start) % 2  # the null block, or a page of NaN
            for block in live:
                tables[row, block] = order.pop()
            key, value = self._context(row, length)
            at = torch.arange(live.start * size, length)
            slots = tables[row][at // size].long() * size + at % size
            page.write(pages, slots, key[at], value[at], scales_of(self.scales()))
        return pages, tables

    def _context(self, row: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        page = self.facts.layout
        generator = torch.Generator().manual_seed(100 + row)
        both = torch.randn(length, 2, page.num_kv_heads, page.head_dim, generator=generator)
        return both[:, 0], both[:, 1]


def case(
    rows: tuple[tuple[int, int], ...],
    heads: tuple[int, int] = (9, 3),
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
    cache: torch.dtype | str | None = None,
    block_size: int = 16,
    kind: str = "tiles",
    **more: float,
) -> Case:
    """A case from what differs."""
    kept = FORMATS[cache] if isinstance(cache, str) else plain_format(cache or dtype)
    layout = Layout(kind=kind, num_kv_heads=heads[1], head_dim=head_dim, block_size=block_size, format=kept)  # type: ignore[arg-type]
    facts = Facts(num_heads=heads[0], layout=layout, dtype=dtype, scale=head_dim**-0.5, **more)  # type: ignore[arg-type]
    return Case(facts, rows)


def cases() -> Iterator[Case]:
    """The head shapes of the models, every path (whole prompts, chunks, single tokens, mixtures), windows, softcap, sinks."""
    fp32, bf16 = torch.float32, torch.bfloat16
    mixed = ((1, 1), (1, 300), (3, 40), (0, 17), (29, 29), (7, 270), (1, 16))
    for dtype in (fp32, bf16):
        yield case(mixed, dtype=dtype)
        yield case(mixed, (4, 1), 256, dtype, block_size=32)
        yield case(mixed, (14, 2), 64, dtype, block_size=48)
        yield case(((1, 5000), (2, 5000), (17, 5000)), dtype=dtype)
        for window in (5, 16, 100, 300):
            yield case(mixed, dtype=dtype, window=window)
        yield case(((1, 3000), (30, 3000)), dtype=dtype, block_size=48, window=600)
        yield case(mixed, dtype=dtype, softcap=5.0)
        yield case(mixed, dtype=dtype, has_sinks=True, window=20)
    yield case(((1, 33), (20, 20)), (2, 2), 80, fp32)
    yield case(((1, 33), (20, 20)), (5, 1), 96, bf16)
    yield case(((1, 515), (40, 40)), (16, 2), 128, fp32, cache=bf16)
    yield case(((1, 515), (10, 40)), (12, 1), 32, bf16, cache=fp32)
    yield case(mixed, (2, 1), 20, torch.float16, block_size=5, kind="plain")
    for name in (each.name for each in FORMATS.values() if not each.is_plain):
        for dtype in (fp32, bf16):
            yield case(mixed, dtype=dtype, cache=name, window=100)
        yield case(((1, 700), (20, 20)), (4, 1), 256, bf16, cache=name, block_size=32, softcap=5.0)
    yield case(((1, 40), (20, 20)), (4, 2), 16, fp32, cache="int4_per_token_head")
    yield case(((1, 40), (20, 20)), (5, 1), 80, bf16, cache="nvfp4")
    yield case(mixed, (2, 1), 20, torch.float16, cache="int8_per_token_head", block_size=5, kind="plain")
