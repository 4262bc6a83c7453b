"""RMS norm: every implementation against the reference, at the edge of unmapped pages, and each row's bits its own."""

import pytest
import torch

from octavo.ops import rms_norm
from octavo.ops.op import choose
from tests.ops import guard
from tests.tolerances import ATOL, RTOL

CASES = list(rms_norm.cases())


def guarded_rows(x: torch.Tensor) -> torch.Tensor:
    """A copy with x's strides whose last row ends at an unmapped page."""
    width = x[0].numel()
    buffer = guard.empty((len(x) - 1) * x.stride(0) + width, dtype=x.dtype)
    view = buffer.as_strided(x.shape, x.stride())
    view.copy_(x)
    return view


def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
    name = str(expected.dtype)[6:]
    torch.testing.assert_close(actual, expected, atol=ATOL[name], rtol=RTOL[name])


def fast(facts: rms_norm.Facts):
    choice = choose("rms_norm", facts)
    if facts.dtype == torch.float16:
        assert choice.name == "reference"
        assert "float16" in choice.refusals[0]
    else:
        assert choice.name == "cpu.norm"
    return choice.implementation


@pytest.mark.parametrize("case", CASES, ids=str)
def test_norm_equals_reference(case):
    norm, reference = fast(case.facts), rms_norm.Reference(case.facts)
    x, weight = guarded_rows(case.x()), guard.copy(case.weight())
    expected = torch.empty_like(x)
    reference(expected, x, weight)
    out = guard.empty(*x.shape, dtype=x.dtype)
    norm(out, x, weight)
    check(out, expected)
    assert torch.equal(x, case.x())
    norm(x, x, weight)
    assert torch.equal(x, out), "in place differs"


@pytest.mark.parametrize("case", [c for c in CASES if c.facts.dtype != torch.float16], ids=str)
def test_a_row_alone_has_the_bits_it_has_in_a_batch(case):
    norm = fast(case.facts)
    x, weight = case.x(), case.weight()
    together = torch.empty_like(x)
    norm(together, x, weight)
    for row in range(min(len(x), 8)):
        alone = torch.empty_like(x[:1])
        norm(alone, x[row : row + 1].clone(), weight)
        assert torch.equal(alone[0], together[row])


def test_forms_differ_as_the_families_do():
    """llama rounds before the weight, gemma after it: with a weight that bf16 cannot hold times x exactly, the results differ."""
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    weight = torch.rand(64, generator=torch.Generator().manual_seed(1)).bfloat16()
    out = [torch.empty_like(x), torch.empty_like(x)]
    for cast, result in zip((True, False), out):
        facts = rms_norm.Facts(width=64, dtype=torch.bfloat16, eps=1e-6, weight_dtype=torch.bfloat16, cast_before_weight=cast)
        fast(facts)(result, x, weight)
        expected = torch.empty_like(x)
        rms_norm.Reference(facts)(expected, x, weight)
        assert (result != expected).float().mean() < 0.02  # a tie of the last bit of the mean, now and then
    assert (out[0] != out[1]).float().mean() > 0.1


@pytest.mark.oracle
def test_equals_transformers():
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    x = torch.randn(9, 640, generator=torch.Generator().manual_seed(0))
    weight = torch.rand(640, generator=torch.Generator().manual_seed(1))
    for oracle, offset, cast in ((LlamaRMSNorm(640, eps=1e-6), 0.0, True), (Gemma3RMSNorm(640, eps=1e-6), 1.0, False)):
        oracle.weight.data.copy_(weight)
        out = torch.empty_like(x)
        facts = rms_norm.Facts(width=640, dtype=x.dtype, eps=1e-6, weight_dtype=x.dtype, offset=offset, cast_before_weight=cast)
        fast(facts)(out, x, weight)
        check(out, oracle(x).detach())
