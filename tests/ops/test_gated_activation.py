"""Gated activations: every implementation against the reference, extremes of exp included, at the edge of unmapped pages."""

import pytest
import torch

from octavo.ops import gated_activation
from octavo.ops.op import choose
from tests.ops import guard
from tests.tolerances import ATOL, RTOL

CASES = list(gated_activation.cases())


def fast(facts: gated_activation.Facts):
    choice = choose("gated_activation", facts)
    assert choice.name == ("reference" if facts.dtype == torch.float16 else "cpu.activation")
    return choice.implementation


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_reference(case):
    gate_up = guard.copy(case.gate_up())
    out = guard.empty(case.tokens, case.facts.width, dtype=case.facts.dtype)
    fast(case.facts)(out, gate_up)
    expected = torch.empty_like(out)
    gated_activation.Reference(case.facts)(expected, gate_up)
    name = str(out.dtype)[6:]
    torch.testing.assert_close(out, expected, atol=ATOL[name], rtol=RTOL[name])


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh", "gelu"])
def test_float32_is_near_double_precision(kind):
    """Over the whole range of a gate the error stays near float32's own."""
    gate = torch.linspace(-20, 20, 4001)
    facts = gated_activation.Facts(kind=kind, width=4001, dtype=torch.float32)
    out = torch.empty(1, 4001)
    fast(facts)(out, torch.cat((gate, torch.ones_like(gate)))[None])
    wide = gate.double()
    forms = {"gelu_tanh": "tanh", "gelu": "none"}
    silu = torch.nn.functional.silu
    expected = silu(wide) if kind == "silu" else torch.nn.functional.gelu(wide, approximate=forms[kind])
    assert (out[0] - expected).abs().max() < 3e-6


def test_the_activation_is_rounded_before_the_product():
    gate_up = (torch.randn(50, 512, generator=torch.Generator().manual_seed(0)) * 2).bfloat16()
    out = torch.empty(50, 256, dtype=torch.bfloat16)
    fast(gated_activation.Facts(kind="silu", width=256, dtype=torch.bfloat16))(out, gate_up)
    gate, up = gate_up.split(256, 1)
    in_two_roundings = torch.nn.functional.silu(gate) * up
    in_one = (torch.nn.functional.silu(gate.float()) * up.float()).bfloat16()
    assert (out != in_two_roundings).float().mean() < 0.02
    assert (out != in_one).float().mean() > 0.1


@pytest.mark.parametrize("case", [c for c in CASES if c.facts.dtype != torch.float16], ids=str)
def test_a_row_alone_has_the_bits_it_has_in_a_batch(case):
    act = fast(case.facts)
    gate_up = case.gate_up()
    together = torch.empty(case.tokens, case.facts.width, dtype=case.facts.dtype)
    act(together, gate_up)
    for row in range(min(case.tokens, 5)):
        alone = torch.empty_like(together[:1])
        act(alone, gate_up[row : row + 1].clone())
        assert torch.equal(alone[0], together[row])
