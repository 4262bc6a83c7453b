"""Paged attention as an implementation: what it refuses, what memory a call needs, and the call."""

import torch

from octavo.ops.attention import Facts
from octavo.ops.cpu import attention_plan, features
from octavo.ops.cpu.attention_kernel import SUMS, block_rows, build, places, row_distance, value_columns
from octavo.ops.cpu.attention_plan import UNIT_ROWS
from octavo.ops.cpu.compile import kernel
from octavo.ops.cpu.pool import Arguments, bits
from octavo.ops.pages import TILE

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def refuses(facts: Facts) -> str | None:
    """Why no variant of the kernel can do this, or None."""
    page = facts.layout
    if facts.dtype not in DTYPES:
        return f"dtype {facts.dtype} is neither float32 nor bfloat16"
    if page.format.code == "float16":
        return "the cache in float16 is neither in float32 nor bfloat16 nor coded"
    if page.kind != "tiles":
        return f"pages are {page.kind}, not tiles"
    if page.head_dim % TILE:
        return f"head dimension {page.head_dim} is not a multiple of {TILE}"
    if not facts.scale > 0:
        return f"the scale {facts.scale} is not positive"
    if facts.num_heads % page.num_kv_heads:
        return f"{facts.num_heads} query heads are not a multiple of {page.num_kv_heads} kv heads"
    if facts.num_heads > UNIT_ROWS * page.num_kv_heads:
        return f"{facts.num_heads // page.num_kv_heads} query heads a kv head are more than {UNIT_ROWS}"
    return None


class PagedAttention:
    """The kernel for one set of facts. Its list of work and its scratch are the caller's, sized by `plan_numbers` and `scratch_size`."""

    @staticmethod
    def how(facts: Facts) -> str:
        """The way to multiply; see attention_tiles."""
        raise NotImplementedError

    def __init__(self, facts: Facts) -> None:
        page, how = facts.layout, self.how(facts)
        group, level = facts.num_heads // page.num_kv_heads, features.level()
        rows, rest = block_rows(level, group)
        vectors_of = tuple(value_columns(level, count, page.head_dim) for count in (rows, rest))
        lanes = TILE // 2 if page.format.bits == 4 and page.head_dim % (2 * TILE) else TILE
        kept = (page.format.code, page.format.scale, lanes)
        self._kernel = kernel(build, how, DTYPES[facts.dtype], level, kept, rows, rest, *vectors_of, row_distance(page.head_dim))
        self._arguments, self._constants = Arguments(25), Arguments(2)
        self._ones = torch.ones(2)
        self._constants.set(bits(facts.scale), bits(facts.softcap))
        self._facts, self._size = facts, facts.dtype.itemsize
        self._threads = torch.get_num_threads()
        self._shape, self._sizes = (0, 0, 0), (0, 0, 0)
        self.plan = attention_plan.Planner(facts, self._threads)

    @classmethod
    def plan_numbers(cls, facts: Facts, num_tokens: int, num_rows: int, max_length: int) -> int:
        """int32 numbers that `plan(out, row_starts, lengths)` writes at most for a step of these sizes."""
        return attention_plan.sizes(facts, torch.get_num_threads(), num_tokens, num_rows, max_length).plan_numbers

    @classmethod
    def _regions(cls, facts: Facts, threads: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """(bytes of kept parts, of the threads' own space, spans of a kept token)"""
        sizes = attention_plan.sizes(facts, threads, *shape)
        page = facts.layout
        kept = sizes.cuts * page.num_kv_heads
        part_bytes = facts.num_heads // page.num_kv_heads * (row_distance(page.head_dim) + SUMS) * 4
        own = threads * places(cls.how(facts), row_distance(page.head_dim), not page.format.is_plain)[-1]
        return kept * sizes.spans * part_bytes, own, sizes.spans

    @classmethod
    def scratch_size(cls, facts: Facts, num_tokens: int, num_rows: int, max_length: int) -> int:
        """Bytes of scratch that a call with these sizes needs; grows with each of them."""
        return sum(cls._regions(facts, torch.get_num_threads(), (num_tokens, num_rows, max_length))[:2])

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
        plan: torch.Tensor | None = None,
        scratch: torch.Tensor | None = None,
        shape: tuple[int, int, int] | None = None,
    ) -> None:
        """As the reference. plan int32 [plan_numbers], scratch uint8 [scratch_size], shape (tokens, rows, longest context).

        The three belong together; what is not given is made here.
        """
        facts, page, size = self._facts, self._facts.layout, self._size
        if shape is None:
            shape = (query.shape[0], lengths.shape[0], int(lengths.max()))
        if plan is None:
            plan = torch.empty(self.plan_numbers(facts, *shape), dtype=torch.int32)
            self.plan(plan, row_starts, lengths)
        if shape != self._shape:
            self._shape, self._sizes = shape, self._regions(facts, self._threads, shape)
        kept, own, spans = self._sizes
        if scratch is None:
            scratch = torch.empty(kept + own, dtype=torch.uint8)
        if facts.has_sinks and sinks is None:
            raise ValueError("attention with sinks was called without them")
        space = scratch.data_ptr()
        self._arguments.set(
            self._constants.address,
            *(out.data_ptr(), out.stride(0) * size, out.stride(1) * size),
            *(query.data_ptr(), query.stride(0) * size, query.stride(1) * size),
            *(pages.data_ptr(), tables.data_ptr(), tables.stride(0), row_starts.data_ptr(), lengths.data_ptr()),
            *(plan.data_ptr(), self._threads, space, page.num_kv_heads, page.block_size, facts.window, spans, pages.stride(0)),
            *(sinks.data_ptr() if facts.has_sinks and sinks is not None else 0, space + kept),
            *(facts.num_heads // page.num_kv_heads, page.head_dim, (self._ones if scales is None else scales).data_ptr()),
        )
        self._kernel(self._threads, 1, self._arguments)
