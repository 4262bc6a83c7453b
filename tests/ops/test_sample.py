"""Sample: the kernel draws the reference's token and keeps the reference's weights, bit for bit, at the edge of unmapped pages."""

import pytest
import torch

from octavo.ops import sample
from octavo.ops.op import choose
from tests.ops import guard

CASES = list(sample.cases())


def run(op, case: sample.Case, logits: torch.Tensor, rows: torch.Tensor, uniforms: torch.Tensor | None = None) -> torch.Tensor:
    temperatures, min_ps, top_ks, top_ps, drawn = case.parameters()
    tokens = guard.empty(len(rows), dtype=torch.int32)
    columns = (temperatures, min_ps, top_ks, top_ps, drawn if uniforms is None else uniforms)
    op(tokens, logits, guard.copy(rows), *(guard.copy(column[rows]) for column in columns), keep_weights=True)
    return tokens


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_reference(case):
    choice = choose("sample", sample.Facts(case.vocab_size))
    assert choice.name == "cpu.sample_row"
    rows = torch.arange(case.num_rows, dtype=torch.int32)
    ours, theirs = guard.copy(case.logits()), case.logits()
    tokens = run(choice.implementation, case, ours, rows)
    expected = run(sample.Reference(sample.Facts(case.vocab_size)), case, theirs, rows)
    assert torch.equal(tokens, expected)
    assert torch.equal(ours.view(torch.int32), theirs.view(torch.int32)), "the weights differ"
    if case.kind == "broken":
        assert tokens[:4].tolist() == [sample.NOT_A_NUMBER, sample.NOT_A_NUMBER, sample.NOTHING_ALLOWED, sample.NOT_A_NUMBER]
        assert (tokens[4:] >= 0).all(), "a broken row touched its neighbours"
    else:
        assert ((tokens >= 0) & (tokens < case.vocab_size)).all()


@pytest.mark.parametrize("case", [case for case in CASES if case.kind in ("plain", "ties")], ids=str)
def test_a_row_alone_draws_what_it_draws_in_a_batch(case):
    op = choose("sample", sample.Facts(case.vocab_size)).implementation
    rows = torch.arange(case.num_rows, dtype=torch.int32)
    together = run(op, case, case.logits(), rows)
    backwards = run(op, case, case.logits(), rows.flip(0)).flip(0)
    assert torch.equal(together, backwards)
    for row in range(case.num_rows):
        assert run(op, case, case.logits(), rows[row : row + 1]).item() == together[row]


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-53])
def test_the_ends_of_the_uniforms(uniform):
    case = sample.Case(17, "masked")
    rows = torch.arange(case.num_rows, dtype=torch.int32)
    uniforms = torch.full((case.num_rows,), uniform, dtype=torch.float64)
    ours = run(choose("sample", sample.Facts(17)).implementation, case, case.logits(), rows, uniforms)
    assert torch.equal(ours, run(sample.Reference(sample.Facts(17)), case, case.logits(), rows, uniforms))
    assert torch.isfinite(case.logits()[rows, ours]).all()


def test_the_border_between_two_tokens_belongs_to_the_second():
    op = choose("sample", sample.Facts(4)).implementation
    tokens, uniforms = torch.empty(5, dtype=torch.int32), torch.tensor([0.0, 0.25, 0.5 - 2.0**-40, 0.5, 0.75], dtype=torch.float64)
    zeros, rows = torch.zeros(5), torch.arange(5, dtype=torch.int32)
    op(tokens, torch.zeros(5, 4), rows, torch.ones(5), zeros, zeros.to(torch.int32), torch.ones(5, dtype=torch.float64), uniforms)
    assert tokens.tolist() == [0, 1, 1, 2, 3]


def test_exponential_is_the_exponential():
    x = -torch.linspace(0, 86.9, 20_001)
    close = torch.exp(x.to(torch.float64))
    assert ((sample.exponential(x) - close).abs() <= 1e-6 * close).all()
    assert sample.exponential(torch.tensor([0.0, float("-inf"), -100.0])).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_masks_forbid_as_the_reference_does(case):
    """Every second row has a mask, in another order than the rows; a nan is seen behind a mask too."""
    words = -(-case.vocab_size // 32)
    masks = torch.randint(-(2**31), 2**31 - 1, (case.num_rows, words), dtype=torch.int32, generator=torch.Generator().manual_seed(3))
    masks[-1] = 0
    places = torch.tensor([case.num_rows - 1 - row if row % 2 else -1 for row in range(case.num_rows)], dtype=torch.int32)
    outcomes = []
    for op in (choose("sample", sample.Facts(case.vocab_size)).implementation, sample.Reference(sample.Facts(case.vocab_size))):
        rows, logits = torch.arange(case.num_rows, dtype=torch.int32), guard.copy(case.logits())
        tokens = guard.empty(case.num_rows, dtype=torch.int32)
        op(tokens, logits, rows, *map(guard.copy, case.parameters()), True, guard.copy(masks), places)
        outcomes.append((tokens, logits.view(torch.int32)))
    assert torch.equal(outcomes[0][0], outcomes[1][0])
    drawn = outcomes[0][0] >= 0
    assert torch.equal(outcomes[0][1][drawn], outcomes[1][1][drawn])
    for row, token in enumerate(outcomes[0][0].tolist()):
        if places[row] >= 0 and token >= 0:
            assert (int(masks[places[row], token // 32]) >> token % 32) & 1, "a forbidden token was drawn"
