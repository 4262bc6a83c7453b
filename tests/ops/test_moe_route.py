"""moe_route: the k largest of a softmax, ties to the lower index, weights as stated, at the edge of an unmapped page."""

import pytest
import torch

from octavo.ops import moe_route
from octavo.ops.order import ORDER
from tests.ops import guard
from tests.ops.implementations import implementation
from tests.tolerances import ATOL, RTOL

CASES = {str(case): case for case in moe_route.cases()}
NAMES = ORDER["cpu"]["moe_route"]


def run(name: str, facts: moe_route.Facts, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights = guard.empty(len(logits), facts.top_k, dtype=torch.float32)
    ids = guard.empty(len(logits), facts.top_k, dtype=torch.int32)
    implementation("moe_route", name)(facts)(weights, ids, guard.copy(logits))
    return weights, ids


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_against_float64(name: str, case: moe_route.Case) -> None:
    facts, logits = case.facts, case.logits()
    weights, ids = run(name, facts, logits)
    order = torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, : facts.top_k]
    probability = torch.softmax(logits.double(), -1).gather(-1, order)
    if facts.renormalize:
        probability = probability / probability.sum(-1, keepdim=True)
    torch.testing.assert_close(weights.double(), probability, atol=ATOL["float32"], rtol=RTOL["float32"])
    certain = torch.ones(len(logits), dtype=torch.bool)
    certain[1:2] = False  # extreme: all but one share are 0, so that the order of the others is not in the softmax
    assert torch.equal(ids[certain].long(), order[certain])
    assert torch.equal(ids[:, 0].long(), order[:, 0])


@pytest.mark.parametrize("name", NAMES)
def test_ties_go_to_the_lower_index(name: str) -> None:
    facts = moe_route.Facts(num_experts=9, top_k=4)
    _, ids = run(name, facts, torch.tensor([[0.0, 3, 3, 1, 3, 1, 1, 3, 0]] * 3))
    assert ids.tolist() == [[1, 2, 4, 7]] * 3


@pytest.mark.parametrize("name", NAMES)
def test_a_nan_stays_in_its_row_and_ids_stay_in_range(name: str) -> None:
    facts = moe_route.Facts(num_experts=8, top_k=2)
    logits = moe_route.Case(facts, 3).logits()
    logits[1, 3] = torch.nan
    weights, ids = run(name, facts, logits)
    assert weights[1].isnan().all()
    assert not weights[[0, 2]].isnan().any()
    assert ((ids >= 0) & (ids < 8)).all()


def test_a_row_alone_has_the_bits_it_has_in_any_batch() -> None:
    facts = moe_route.Facts(num_experts=60, top_k=4)
    logits = moe_route.Case(facts, 40).logits()
    whole, _ = run(NAMES[0], facts, logits)
    for row in range(40):
        assert torch.equal(run(NAMES[0], facts, logits[row : row + 1])[0][0], whole[row])
