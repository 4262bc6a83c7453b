"""Top logprobs: against torch's log_softmax, and the same for a row alone."""

import pytest
import torch

from octavo.ops import top_logprobs
from octavo.ops.op import choose
from octavo.ops.order import ORDER
from tests.tolerances import ATOL

CASES = list(top_logprobs.cases())


def run(op, case: top_logprobs.Case, logits: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    width = 1 + case.num_top + len(case.listed)
    values, ids = torch.empty(len(logits), width), torch.empty(len(logits), width, dtype=torch.int32)
    ranks = torch.empty(len(logits), dtype=torch.int32)
    op(values, ids, ranks, logits, tokens, case.num_top, list(case.listed), case.normalise)
    return values, ids, ranks


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", ORDER["cpu"]["top_logprobs"])
def test_values_ids_and_ranks(case, name):
    op = choose("top_logprobs", top_logprobs.Facts(case.vocab_size)).implementation
    logits, tokens = case.logits(), case.tokens()
    values, ids, ranks = run(op, case, logits, tokens)
    expected = torch.log_softmax(logits.to(torch.float64), -1).to(torch.float32) if case.normalise else logits
    torch.testing.assert_close(values, expected.gather(1, ids.long()), atol=ATOL["float32"], rtol=0)
    assert torch.equal(ids[:, 0], tokens)
    assert ids[:, 1 + case.num_top :].tolist() == [list(case.listed)] * case.num_rows
    for row in range(case.num_rows):
        numbers = logits[row].tolist()
        order = sorted(range(case.vocab_size), key=lambda token: (-numbers[token], token))
        assert ids[row, 1 : 1 + case.num_top].tolist() == order[: case.num_top]
        assert ranks[row] == 1 + sum(number > numbers[tokens[row]] for number in numbers)
        alone = run(op, case, logits[row : row + 1], tokens[row : row + 1])
        assert torch.equal(alone[0][0], values[row]), "a row alone differs"
