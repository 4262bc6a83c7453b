"""Paged attention: every implementation against the reference, nothing read that no query sees, and each token's bits its own."""

import dataclasses
import os

import numpy as np
import pytest
import torch

from octavo.config.cache_formats import FORMATS
from octavo.ops import attention
from octavo.ops.cpu import attention_paged, attention_plan
from octavo.ops.cpu.attention_plan import COUNTERS, UNIT
from octavo.ops.cpu.attention_tiles import SPAN
from octavo.ops.op import choose
from octavo.ops.pages import scales_of
from tests.ops import guard
from tests.tolerances import ATOL, RTOL

IS_NARROWER = "NUMBA_CPU_NAME" in os.environ  # compiled for another CPU: one head shape is enough, since each costs seconds to compile
CASES = [case for case in attention.cases() if case.facts.num_heads == 9 or not IS_NARROWER]


def chosen(facts: attention.Facts):
    """The implementation that is chosen; the reference only where pages are not tiles."""
    choice = choose("attention", facts)
    assert (choice.name == "reference") == (facts.layout.kind == "plain")
    assert all(": " in refusal for refusal in choice.refusals)
    return choice.implementation


@pytest.fixture
def threads():
    """Sets torch's number of threads; what it was comes back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def guarded(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else guard.copy(tensor)


def run(case: attention.Case, query=None, cache=None, row_starts=None, lengths=None) -> torch.Tensor:
    """The chosen implementation over the case, or over other rows of the same cache."""
    query = case.query() if query is None else query
    pages, tables = case.cache() if cache is None else cache
    starts = case.row_starts() if row_starts is None else torch.tensor(row_starts, dtype=torch.int32)
    lengths = case.lengths() if lengths is None else torch.tensor(lengths, dtype=torch.int32)
    out = torch.full_like(query, torch.nan)
    chosen(case.facts)(out, query, pages, tables, starts, lengths, case.sinks(), case.scales())
    assert not out.isnan().any()
    return out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_reference(case):
    check(case, case.query())


def check(case: attention.Case, query: torch.Tensor) -> None:
    """The chosen implementation of a case gives what the reference does, and reads and writes within its bounds."""
    pages, tables = (guard.copy(x) for x in case.cache())
    inputs = (query, case.row_starts(), case.lengths(), case.sinks(), case.scales())
    query, starts, lengths, sinks, scales = (guarded(x) for x in inputs)
    expected = torch.empty_like(query)
    attention.Reference(case.facts)(expected, query, pages, tables, starts, lengths, sinks, scales)
    assert not expected.isnan().any()
    implementation = chosen(case.facts)
    out = guard.empty(*query.shape, dtype=query.dtype)
    extra = {}
    if isinstance(implementation, attention_paged.PagedAttention):
        shape = (len(query), len(lengths), int(lengths.max()))
        plan = guard.empty(implementation.plan_numbers(case.facts, *shape), dtype=torch.int32)
        implementation.plan(plan, starts, lengths)
        scratch = guard.empty(implementation.scratch_size(case.facts, *shape), dtype=torch.uint8)
        extra = {"plan": plan, "scratch": scratch, "shape": shape}
    implementation(out, query, pages, tables, starts, lengths, sinks, scales, **extra)
    name = str(query.dtype)[6:]
    torch.testing.assert_close(out, expected, atol=ATOL[name], rtol=RTOL[name])


def test_reference_equals_torch():
    case = attention.case(((70, 70),), heads=(4, 4))
    out = torch.empty_like(case.query())
    pages, tables = case.cache()
    attention.Reference(case.facts)(out, case.query(), pages, tables, case.row_starts(), case.lengths())
    key, value = case._context(0, 70)
    query, key, value = (x.transpose(0, 1) for x in (case.query(), key, value))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(0, 1)
    torch.testing.assert_close(out, expected, atol=ATOL["float32"], rtol=RTOL["float32"])


LENGTH = 600
SAME_BITS = [
    attention.case(((LENGTH, LENGTH),), dtype=dtype, **more)
    for dtype in (torch.float32, torch.bfloat16)
    for more in (
        *({}, {"window": 40}, {"window": 270, "has_sinks": True}, {"softcap": 3.0}),
        *({"cache": name, "window": 100} for name, kept in FORMATS.items() if not kept.is_plain),
    )
]


@pytest.mark.parametrize("case", SAME_BITS, ids=str)
def test_a_token_has_the_same_bits_alone_in_a_chunk_and_in_the_whole_prompt(case):
    query, cache = case.query(), case.cache()
    whole = run(case, query, cache)
    for length in (1, 2, 16, 17, 31, 255, 256, 257, 513, LENGTH):
        alone = run(case, query[length - 1 : length].clone(), cache, [0, 1], [length])
        assert torch.equal(alone[0], whole[length - 1]), f"alone at {length - 1}"
    start = 0
    for count in (3, 14, 1, 230, 9, 7, 336):
        chunk = run(case, query[start : start + count].clone(), cache, [0, count], [start + count])
        assert torch.equal(chunk, whole[start : start + count]), f"chunk {start}..{start + count}"
        start += count
    assert start == LENGTH


@pytest.mark.parametrize("case", SAME_BITS, ids=str)
def test_batch_mates_and_threads_change_no_bit(case, threads):
    query, (pages, table) = case.query(), case.cache()
    whole = run(case, query, (pages, table))
    rows = [(1, 600), (5, 300), (1, 7), (100, 100), (1, 257), (0, 50), (2, 600)]
    mixed = torch.cat([query[length - count : length] for count, length in rows])
    starts = np.cumsum([0, *(count for count, _ in rows)]).tolist()
    for count in (1, 2, 5):
        threads(count)
        out = run(case, mixed, (pages, table.expand(len(rows), -1).contiguous()), starts, [length for _, length in rows])
        for row, (tokens, length) in enumerate(rows):
            assert torch.equal(out[starts[row] : starts[row + 1]], whole[length - tokens : length]), f"row {row}, {count} threads"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_block_size_changes_no_bit(dtype):
    results = [run(attention.case(((1, 400), (60, 90)), dtype=dtype, block_size=size, window=150)) for size in (16, 32, 48, 256)]
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_long_context_cut_over_threads_has_the_bits_of_one_thread(dtype, threads):
    case = attention.case(((1, 5000), (1, 700)), dtype=dtype)
    results = []
    for count in (1, 2, 7):
        threads(count)
        results.append(run(case))
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_views_of_a_fused_buffer_are_read_and_written_in_place():
    case = attention.case(((3, 40), (1, 20)))
    fused = torch.full((4, 15, 64), torch.nan)
    fused[:, :9] = case.query()
    out = torch.full((4, 12, 64), torch.nan)
    pages, tables = case.cache()
    chosen(case.facts)(out[:, 2:11], fused[:, :9], pages, tables, case.row_starts(), case.lengths())
    assert torch.equal(out[:, 2:11], run(case))
    assert out[:, :2].isnan().all()
    assert out[:, 11:].isnan().all()


def test_a_plan_serves_any_number_of_calls_and_any_bound_of_the_context(threads):
    """As layers of one step use it, or one step after another whose longest context has the same bucket."""
    threads(2)
    case = attention.case(((1, 5000), (1, 700), (20, 20)), dtype=torch.bfloat16)
    expected = run(case)
    implementation, (pages, tables), query = chosen(case.facts), case.cache(), case.query()
    shape = (len(query), 3, 8192)
    plan = guard.empty(implementation.plan_numbers(case.facts, *shape), dtype=torch.int32).fill_(-1)
    scratch = guard.empty(implementation.scratch_size(case.facts, *shape), dtype=torch.uint8).fill_(0xFF)
    implementation.plan(plan, case.row_starts(), case.lengths())
    made = plan.clone()
    for _ in range(3):
        out = torch.full_like(query, torch.nan)
        told = {"plan": plan, "scratch": scratch, "shape": shape}
        implementation(out, query, pages, tables, case.row_starts(), case.lengths(), **told)
        assert torch.equal(out, expected)
        assert torch.equal(plan[: made[2]], made[: made[2]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_too_small_for_any_number_are_zero(dtype):
    case = attention.case(((1, 300), (40, 40)), dtype=dtype)
    check(case, case.query() * 50)


@pytest.mark.parametrize("name", [name for name, kept in FORMATS.items() if kept.code.startswith(("bfloat", "float8"))])
@pytest.mark.parametrize("part", ["keys", "values"])
def test_nan_that_is_seen_stays_nan(name, part):
    case = attention.case(((40, 40),), dtype=torch.bfloat16, cache=name)
    (pages, tables), page = case.cache(), case.facts.layout
    key, value = case._context(0, 40)
    {"keys": key, "values": value}[part][20, 1, 5] = torch.nan
    at = torch.arange(40)
    page.write(pages, tables[0][at // 16].long() * 16 + at % 16, key, value, scales_of(case.scales()))
    out = torch.empty_like(case.query())
    chosen(case.facts)(out, case.query(), pages, tables, case.row_starts(), case.lengths(), None, case.scales())
    is_nan = out.isnan().any(2)
    assert is_nan[20:, 3:6].all()
    assert not is_nan[:20].any()
    assert not is_nan[:, [0, 1, 2, 6, 7, 8]].any()


def units(plan: torch.Tensor) -> list[list[int]]:
    return plan[int(plan[2]) :][: UNIT * int(plan[0])].view(-1, UNIT).tolist()


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_covers_each_token_once_within_its_bounds(seed):
    random = np.random.default_rng(seed)
    heads, window, threads = [((9, 3), 0, 2), ((4, 1), 100, 4), ((8, 8), 0, 1), ((16, 1), 700, 64), ((6, 2), 0, 16)][seed % 5]
    facts = attention.case(((1, 1),), heads=heads, window=window).facts
    num_rows = int(random.integers(1, 12))
    counts = np.where(random.random(num_rows) < 0.6, 1, random.integers(0, 200, num_rows))
    lengths = counts + random.choice([0, 10, 3000, 20000], num_rows)
    lengths[lengths == 0] = 1
    starts = np.concatenate(([0], np.cumsum(counts)))
    sizes = attention_plan.sizes(facts, threads, int(starts[-1]), num_rows, int(lengths.max()))
    plan = guard.empty(sizes.plan_numbers, dtype=torch.int32).fill_(-1)
    planner = attention_plan.Planner(facts, threads)
    planner(plan, torch.tensor(starts, dtype=torch.int32), torch.tensor(lengths, dtype=torch.int32))
    assert plan[0] <= sizes.units
    assert plan[1] <= sizes.cuts
    assert plan[2] == sizes.header
    assert not plan[COUNTERS : sizes.header].any()
    assert COUNTERS + 16 + sizes.cuts * heads[1] <= sizes.header
    spans_of: dict[int, list[int]] = {}
    for row, token, tokens, first, last, cut, pieces, origin in units(plan):
        assert starts[row] <= token < token + tokens <= starts[row + 1]
        assert tokens <= planner.tokens_per_unit
        assert last > first >= origin
        assert (cut >= 0) == (pieces > 1)
        if cut >= 0:
            assert tokens == 1
            assert last - origin <= sizes.spans
        for at in range(token, token + tokens):
            spans_of.setdefault(at, []).extend(range(first, last))
    for row in range(num_rows):
        for token in range(starts[row], starts[row + 1]):
            position = lengths[row] - (starts[row + 1] - token)
            low = max(0, position - window + 1) if window else 0
            spans = spans_of.pop(token)
            assert len(spans) == len(set(spans))
            assert set(range(low // SPAN, position // SPAN + 1)) <= set(spans)
    assert not spans_of


def test_refusals_name_the_reason():
    refuses = attention_paged.refuses
    assert refuses(attention.case(((1, 1),)).facts) is None
    assert "head dimension 24" in refuses(attention.case(((1, 1),), head_dim=24).facts)
    assert "float16" in refuses(attention.case(((1, 1),), dtype=torch.float16).facts)
    assert "not positive" in refuses(dataclasses.replace(attention.case(((1, 1),)).facts, scale=0.0))
    assert "plain" in refuses(attention.case(((1, 1),), block_size=5, kind="plain").facts)
