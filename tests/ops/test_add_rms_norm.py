"""Add and norm: every implementation against the reference, at the edge of unmapped pages, and each row's bits its own."""

import pytest
import torch

from octavo.ops import add_rms_norm
from octavo.ops.op import choose
from tests.ops import guard
from tests.ops.test_rms_norm import check, guarded_rows

CASES = list(add_rms_norm.cases())


def fast(facts: add_rms_norm.Facts):
    choice = choose("add_rms_norm", facts)
    assert choice.name == ("reference" if facts.dtype == torch.float16 else "cpu.add_norm")
    return choice.implementation


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sum_and_norm_equal_reference(case):
    norm, reference = fast(case.facts), add_rms_norm.Reference(case.facts)
    x, weight = guarded_rows(case.x()), guard.copy(case.weight())
    residual = guard.copy(case.x().flip(0))
    expected, expected_residual = torch.empty_like(x), residual.clone()
    reference(expected, expected_residual, x, weight)
    norm(x, residual, x, weight)
    assert torch.equal(residual, expected_residual)
    check(x, expected)


@pytest.mark.parametrize("case", [c for c in CASES if c.facts.dtype != torch.float16], ids=str)
def test_a_row_alone_has_the_bits_it_has_in_a_batch(case):
    norm, weight = fast(case.facts), case.weight()
    x, residual = case.x().contiguous(), case.x().flip(0)
    together, sums = torch.empty_like(x), residual.clone()
    norm(together, sums, x, weight)
    for row in range(min(len(x), 8)):
        alone, total = torch.empty_like(x[:1]), residual[row : row + 1].clone()
        norm(alone, total, x[row : row + 1].clone(), weight)
        assert torch.equal(alone[0], together[row])
        assert torch.equal(total[0], sums[row])
