"""Rope and store: every implementation against the reference, pages included, at the edge of unmapped pages."""

import pytest
import torch

from octavo.ops import rope_store
from octavo.ops.op import choose
from octavo.ops.pages import Layout, plain_format
from tests.ops import guard
from tests.tolerances import ATOL, RTOL

CASES = list(rope_store.cases())


def fast(facts: rope_store.Facts):
    choice = choose("rope_store", facts)
    assert choice.name == ("cpu.rope_store" if facts.layout.kind == "tiles" and facts.dtype != torch.float16 else "reference")
    return choice.implementation


def guarded(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else guard.copy(tensor)


def empty_pages(case: rope_store.Case, padding: int = 0) -> torch.Tensor:
    """Pages full of a pattern, so that a write at a wrong place shows; with `padding` bytes between them."""
    page_bytes = case.facts.layout.page_bytes
    return guard.copy(torch.full((case.num_blocks, page_bytes + padding), 7, dtype=torch.uint8))[:, :page_bytes]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_reference(case):
    results = []
    for implementation in (rope_store.Reference(case.facts), fast(case.facts)):
        fused, pages = guard.copy(case.fused()), empty_pages(case)
        query, key, value = case.split(fused)
        angles, positions, slots, scales = (guarded(x) for x in (case.cos_sin(), case.positions(), case.slots(), case.scales()))
        implementation(query, key, value, angles, positions, pages, slots, scales)
        results.append((query, value, pages))
    name = str(case.facts.dtype)[6:]
    (query, value, pages), (fast_query, fast_value, fast_pages) = results
    torch.testing.assert_close(fast_query, query, atol=ATOL[name], rtol=RTOL[name])
    assert torch.equal(fast_value, value)
    layout = case.facts.layout
    if not layout.format.is_plain:
        if layout.kind == "tiles":  # the fast key was turned in place, by arithmetic that may round otherwise than the reference's
            pages, kept = empty_pages(case), case.slots() >= 0
            layout.write(pages, case.slots()[kept], key[kept], fast_value[kept], tuple(case.scales().tolist()))
        assert torch.equal(fast_pages, pages)
        return
    assert torch.equal(layout.values(fast_pages).contiguous().view(torch.uint8), layout.values(pages).contiguous().view(torch.uint8))
    cache = str(layout.dtype)[6:]
    torch.testing.assert_close(layout.keys(fast_pages), layout.keys(pages), atol=max(ATOL[name], ATOL[cache]), rtol=RTOL[cache])


@pytest.mark.parametrize("case", [c for c in CASES if c.facts.dtype != torch.float16], ids=str)
def test_tokens_one_by_one_give_the_same_bits(case):
    store = fast(case.facts)
    positions, slots, angles = case.positions(), case.slots(), case.cos_sin()
    together, alone = case.fused(), case.fused()
    pages, pages_alone = empty_pages(case, 128), empty_pages(case, 128)
    store(*case.split(together), angles, positions, pages, slots, case.scales())
    for token in range(case.tokens):
        one = slice(token, token + 1)
        store(*case.split(alone[one]), angles, positions[one].clone(), pages_alone, slots[one].clone(), case.scales())
    assert torch.equal(case.split(together)[0], case.split(alone)[0])
    assert torch.equal(pages, pages_alone)


def test_what_is_written_is_read_back():
    for kind, block_size in (("plain", 5), ("tiles", 48)):
        for dtype in (torch.float32, torch.bfloat16):
            layout = Layout(kind=kind, num_kv_heads=3, head_dim=32, block_size=block_size, format=plain_format(dtype))
            pages = torch.zeros(4, layout.page_bytes + 64, dtype=torch.uint8)
            slots = torch.randperm(4 * block_size, generator=torch.Generator().manual_seed(0))[:17]
            key, value = torch.randn(2, 17, 3, 32, generator=torch.Generator().manual_seed(1)).to(dtype)
            layout.write(pages, slots, key, value)
            read_key, read_value = layout.read(pages, slots)
            assert torch.equal(read_key, key)
            assert torch.equal(read_value, value)


def test_pages_of_tiles_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="multiple of 16"):
        Layout(kind="tiles", num_kv_heads=1, head_dim=32, block_size=24, format=plain_format(torch.bfloat16))


@pytest.mark.oracle
def test_equals_transformers():
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    case = next(c for c in CASES if c.facts.dtype == torch.float32 and c.facts.rotary_dim == c.facts.layout.head_dim)
    query, key, value = case.split(case.fused())
    angles = case.cos_sin()[case.positions().long()]
    cos, sin = (part.repeat(1, 2)[None] for part in angles.chunk(2, 1))
    expected, expected_key = (
        x[0].transpose(0, 1) for x in apply_rotary_pos_emb(query.transpose(0, 1)[None], key.transpose(0, 1)[None], cos, sin)
    )
    pages = empty_pages(case)
    fast(case.facts)(query, key, value, case.cos_sin(), case.positions(), pages, case.slots())
    torch.testing.assert_close(query, expected, atol=ATOL["float32"], rtol=RTOL["float32"])
    kept = case.slots() >= 0
    stored, _ = case.facts.layout.read(pages, case.slots()[kept])
    torch.testing.assert_close(stored, expected_key[kept], atol=ATOL["float32"], rtol=RTOL["float32"])
