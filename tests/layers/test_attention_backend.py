"""Attention back ends: store and attend over a growing cache, equal to each other, within the arena that a dry run measured."""

import pytest
import torch

from octavo.attention.batch import Batch
from octavo.attention.interface import Facts, choose_backend
from octavo.config.cache_formats import FORMATS
from octavo.device.arena import Arena
from octavo.errors import ConfigError
from octavo.ops.pages import plain_format
from octavo.plugins import UnknownNameError
from tests.tolerances import ATOL, RTOL

BASE = {"num_heads": 9, "num_kv_heads": 3, "head_dim": 64, "block_size": 16, "scale": 0.125, "rotary_dim": 64}
LENGTHS = (70, 5, 300)


CODED = [name for name, kept in FORMATS.items() if not kept.is_plain]


def facts(dtype: torch.dtype = torch.float32, kept: str | None = None, **more) -> Facts:
    return Facts(**(BASE | {"dtype": dtype, "cache_format": FORMATS[kept] if kept else plain_format(dtype)} | more))


def cos_sin(f: Facts) -> torch.Tensor:
    angles = torch.outer(torch.arange(512.0), 1e4 ** -torch.linspace(0, 1, f.rotary_dim // 2))
    return torch.cat((angles.cos(), angles.sin()), 1)


def make_batch(f: Facts, rows: list[tuple[int, int]], tables: torch.Tensor, device: str = "cpu") -> Batch:
    """rows: (tokens in the step, context after it). Tensors are longer than the step, as the worker's buffers are."""
    counts = [count for count, _ in rows]
    starts = torch.tensor([0, *counts]).cumsum(0).to(torch.int32)
    positions = torch.cat([torch.arange(length - count, length) for count, length in rows])
    row_of = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(counts))
    slots = tables[row_of, positions // f.block_size].long() * f.block_size + positions % f.block_size
    spare = torch.full((3,), 1 << 30)
    return Batch(
        num_tokens=sum(counts),
        num_rows=len(rows),
        tokens=torch.zeros(sum(counts), dtype=torch.int32, device=device),
        positions=torch.cat((positions, spare)).to(torch.int32).to(device),
        row_starts=torch.cat((starts, spare.to(torch.int32))).to(device),
        lengths=torch.tensor([*(length for _, length in rows), 1 << 30], dtype=torch.int32, device=device),
        tables=[tables.to(device)],
        slots=[torch.cat((slots, spare)).to(device)],
        max_count=max(counts),
        max_length=max(length for _, length in rows),
        block_size=f.block_size,
    )


class Layer:
    """One layer with a cache of its own, fed with the same numbers for the same row and position whatever the steps are."""

    def __init__(self, f: Facts, name: str | None = None, page_padding: int = 0) -> None:
        self.facts = f
        self.choice = choose_backend(f, name)
        self.backend = self.choice.implementation
        width = -(-max(LENGTHS) // f.block_size) + 1
        ids = 1 + torch.randperm(len(LENGTHS) * width, generator=torch.Generator().manual_seed(1))
        self.tables = ids.view(len(LENGTHS), width).to(torch.int32)
        pages = torch.full((1 + len(ids), self.backend.layout().page_bytes + page_padding), 0xFF, dtype=torch.uint8)
        self.cache = self.backend.bind(pages, torch.tensor([0.021, 0.013]))
        self.sinks = torch.linspace(-2, 2, f.num_heads) if f.has_sinks else None
        heads = f.num_heads + 2 * f.num_kv_heads
        self.numbers = [
            torch.randn(length, heads, f.head_dim, generator=torch.Generator().manual_seed(10 + row)).to(f.dtype)
            for row, length in enumerate(LENGTHS)
        ]

    def step(self, rows: list[tuple[int, int]], planned: bool = True) -> torch.Tensor:
        """One forward of this layer; its scratch is what a dry run of the same sizes measured."""
        f, batch = self.facts, make_batch(self.facts, rows, self.tables)
        arena = Arena(torch.empty(measure(f, rows, self.tables, self.choice.name, planned), dtype=torch.uint8))
        fused = torch.cat([self.numbers[row][length - count : length] for row, (count, length) in enumerate(rows)])
        query, key, value = fused.split([f.num_heads, f.num_kv_heads, f.num_kv_heads], 1)
        out = torch.empty_like(query.contiguous())
        if planned:
            self.backend.plan(batch, 0, arena)
        self.backend.store(query, key, value, cos_sin(f) if f.rotary_dim else None, batch, 0, self.cache)
        self.backend.attend(out, query, batch, 0, self.cache, arena, self.sinks)
        assert not out.isnan().any()
        return out


def measure(f: Facts, rows: list[tuple[int, int]], tables: torch.Tensor, name: str, planned: bool = True) -> int:
    """Bytes of arena that a dry run on meta tensors takes."""
    backend = choose_backend(f, name, dry=True).implementation
    batch, arena = make_batch(f, rows, tables, "meta"), Arena()
    cache = backend.bind(torch.empty(4, backend.layout().page_bytes, dtype=torch.uint8, device="meta"))
    query, key = (torch.empty(batch.num_tokens, heads, f.head_dim, dtype=f.dtype, device="meta") for heads in (f.num_heads, f.num_kv_heads))
    if planned:
        backend.plan(batch, 0, arena)
    backend.store(query, key, key, None, batch, 0, cache)
    backend.attend(query, query, batch, 0, cache, arena, None)
    return arena.high_water


def run(layer: Layer, chunks: int) -> list[torch.Tensor]:
    """Each row's whole result, its prompt taken `chunks` tokens at a time, all rows in each step."""
    done = [0] * len(LENGTHS)
    results: list[list[torch.Tensor]] = [[] for _ in LENGTHS]
    while any(d < length for d, length in zip(done, LENGTHS)):
        rows = []
        for row, length in enumerate(LENGTHS):
            count = min(chunks + row, length - done[row])
            done[row] += count
            rows.append((count, done[row]))
        out = layer.step(rows)
        for row, part in enumerate(out.split([count for count, _ in rows])):
            results[row].append(part)
    return [torch.cat(parts) for parts in results]


VARIANTS = [
    {},
    {"window": 30},
    {"window": 7, "has_sinks": True, "block_size": 48},
    {"softcap": 20.0, "rotary_dim": 32, "block_size": 32},
    {"rotary_dim": 0},
    {"interleaved": True},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_back_ends_agree(variant, dtype):
    f = facts(dtype, **variant)
    name = str(dtype)[6:]
    expected = run(Layer(f, "torch_sdpa"), 300)
    for actual, wanted in zip(run(Layer(f), 50), expected):
        torch.testing.assert_close(actual, wanted, atol=ATOL[name], rtol=RTOL[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_chunks_of_any_size_give_the_same_bits(dtype):
    results = [run(Layer(facts(dtype, window=100)), chunks) for chunks in (300, 64, 7)]
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_pages_may_be_wider_than_the_layer_needs():
    assert all(torch.equal(a, b) for a, b in zip(run(Layer(facts()), 64), run(Layer(facts(), page_padding=192), 64)))


def test_attend_plans_for_itself_if_nobody_did():
    layer = Layer(facts())
    rows = [(70, 70), (5, 5), (300, 300)]
    assert torch.equal(layer.step(rows), layer.step(rows, planned=False))


def test_a_plan_for_another_window_is_not_used():
    f, other = facts(window=10), facts()
    rows = [(70, 70), (5, 5), (300, 300)]
    layer, foreign = Layer(f), choose_backend(other).implementation
    batch, arena = make_batch(f, rows, layer.tables), Arena(torch.empty(1 << 22, dtype=torch.uint8))
    foreign.plan(batch, 0, arena)
    query, key, value = torch.cat(layer.numbers).split([9, 3, 3], 1)
    out = torch.empty_like(query.contiguous())
    layer.backend.store(query, key, value, cos_sin(f), batch, 0, layer.cache)
    layer.backend.attend(out, query, batch, 0, layer.cache, arena)
    assert torch.equal(out, Layer(f).step(rows))


def test_scratch_grows_with_the_step_only():
    """The largest step's dry run bounds every smaller step."""
    f = facts(torch.bfloat16)
    tables = torch.ones(64, 512, dtype=torch.int32)
    largest = measure(f, [(8, 4000)] * 64, tables, "cpu_attn")
    for rows in ([(1, 4000)], [(1, 4000)] * 64, [(512, 4000)], [(1, 17)] * 30 + [(200, 3000)]):
        assert measure(f, rows, tables, "cpu_attn") <= largest


# of one key or value of 64 numbers
VECTOR_BYTES = {
    "float32": 256,
    "bfloat16": 128,
    "fp8_e4m3": 64,
    "fp8_e5m2": 64,
    "fp8_per_token_head": 68,
    "int8_per_token_head": 68,
    "int4_per_token_head": 36,
    "nvfp4": 36,
}


@pytest.mark.parametrize("kept", VECTOR_BYTES)
def test_page_is_as_large_as_the_spec_says(kept):
    for name in ("cpu_attn", "torch_sdpa"):
        layout = choose_backend(facts(torch.float32, kept), name, dry=True).implementation.layout()
        assert layout.page_bytes == 16 * FORMATS[kept].bytes_per_token(3, 64) == 16 * 2 * 3 * VECTOR_BYTES[kept]


@pytest.mark.parametrize("kept", CODED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_back_ends_agree_over_a_coded_cache(kept, dtype):
    """To the bit of what they store; and chunks of any size give the same bits."""
    f = facts(dtype, kept, window=100, rotary_dim=0)
    name = str(dtype)[6:]
    results = [run(Layer(f), chunks) for chunks in (300, 7)]
    for actual, again, wanted in zip(*results, run(Layer(f, "torch_sdpa"), 300)):
        assert torch.equal(actual, again)
        torch.testing.assert_close(actual, wanted, atol=ATOL[name], rtol=RTOL[name])


def test_a_format_that_does_not_fit_the_heads_is_refused():
    with pytest.raises(ConfigError, match="head dimension 24 is not a multiple of 16, as nvfp4 needs"):
        choose_backend(facts(kept="nvfp4", head_dim=24, rotary_dim=0), dry=True)


def test_first_in_order_that_does_not_refuse_is_chosen():
    assert choose_backend(facts(), dry=True).name == "cpu_attn"
    for refused, reason in (
        (facts(block_size=24), "block size 24"),
        (facts(head_dim=20, rotary_dim=20), "head dimension 20"),
        (facts(torch.float16), "float16"),
    ):
        choice = choose_backend(refused, dry=True)
        assert choice.name == "torch_sdpa"
        assert reason in choice.refusals[0]
    assert choose_backend(facts(), mode="reference", dry=True).name == "torch_sdpa"


def test_a_forced_back_end_that_refuses_is_an_error_with_the_reason():
    with pytest.raises(ConfigError, match="block size 24 is not a multiple of 16"):
        choose_backend(facts(block_size=24), "CPU_ATTN")
    with pytest.raises(UnknownNameError, match="did you mean TORCH_SDPA"):
        choose_backend(facts(), "TORCH_SPDA")


def test_pages_that_do_not_fit_are_refused():
    backend = choose_backend(facts(), dry=True).implementation
    with pytest.raises(ValueError, match="at least 24576"):
        backend.bind(torch.empty(3, 100, dtype=torch.uint8))
