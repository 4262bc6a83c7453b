"""moe_experts: every implementation against float64 at the edge of an unmapped page; a token alone is the token in any batch."""

import functools

import pytest
import torch
from torch.nn import functional

from octavo.ops import moe_experts
from octavo.ops.op import choose
from octavo.ops.order import ORDER
from tests.ops import guard
from tests.ops.implementations import implementation
from tests.tolerances import ATOL, RTOL

CASES = {str(case): case for case in moe_experts.cases()}


@functools.cache
def packed(cls: type, case: moe_experts.Case) -> list[torch.Tensor]:
    return [guard.copy(cls.pack(weight, case.facts)) for weight in (case.gate_up(), case.down())]


def run(cls: type, case: moe_experts.Case, rows: slice = slice(None), spread: int = 0) -> torch.Tensor:
    """The result of some tokens; x's and out's rows lie `spread` numbers further apart than they need."""
    facts = case.facts
    whole = guard.empty(len(case.x()[rows]), facts.hidden + spread, dtype=facts.dtype)
    x = whole[:, spread:].copy_(case.x()[rows])
    out = guard.empty(len(x), facts.hidden + spread, dtype=facts.dtype).fill_(7)
    scratch = guard.empty(cls.scratch_size(facts, len(x)), dtype=torch.uint8).fill_(255)
    cls(facts)(out[:, spread:], x, guard.copy(case.ids()[rows]), guard.copy(case.weights()[rows]), *packed(cls, case), scratch)
    assert torch.all(out[:, :spread] == 7)
    return out[:, spread:]


def exact(case: moe_experts.Case) -> torch.Tensor:
    x, gate_up, down = case.x().double(), case.gate_up().double(), case.down().double()
    total = torch.zeros_like(x)
    for place in range(case.facts.top_k):
        expert = case.ids()[:, place].long()
        for e in range(case.facts.num_experts):
            tokens = expert == e
            gate, up = (x[tokens] @ gate_up[e].t()).split(case.facts.intermediate, -1)
            total[tokens] += (functional.silu(gate) * up) @ down[e].t() * case.weights()[tokens, place, None]
    return total


@pytest.mark.parametrize("name", ORDER["cpu"]["moe_experts"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_against_float64(name: str, case: moe_experts.Case) -> None:
    cls = implementation("moe_experts", name)
    if (reason := cls.refuses(case.facts)) is not None:
        assert "float16" in reason
        return
    key = str(case.facts.dtype)[6:]
    for spread in (0, 11):
        torch.testing.assert_close(run(cls, case, spread=spread).double(), exact(case), atol=ATOL[key], rtol=RTOL[key])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_alone_has_the_bits_it_has_in_any_batch(dtype: torch.dtype) -> None:
    cls = implementation("moe_experts", "cpu.moe_tile")
    case = moe_experts.Case(moe_experts.Facts(num_experts=5, top_k=2, hidden=50, intermediate=70, dtype=dtype), 100)
    alone = torch.cat([run(cls, case, slice(t, t + 1)) for t in range(100)])
    for tokens in (2, 7, 33, 100):
        assert torch.equal(run(cls, case, slice(3, 3 + tokens)), alone[3 : 3 + tokens]), tokens


def test_ids_out_of_range_take_the_nearest_expert() -> None:
    facts = moe_experts.Facts(num_experts=3, top_k=1, hidden=16, intermediate=16, dtype=torch.float32)
    case = moe_experts.Case(facts, 2)
    results = []
    for name in ORDER["cpu"]["moe_experts"]:
        op = implementation("moe_experts", name)
        weights = [op.pack(w, facts) for w in (case.gate_up(), case.down())]
        for ids in ([[-7], [99]], [[0], [2]]):
            out = torch.empty(2, 16)
            scratch = torch.empty(op.scratch_size(facts, 2), dtype=torch.uint8)
            op(facts)(out, case.x(), torch.tensor(ids, dtype=torch.int32), torch.ones(2, 1), *weights, scratch)
            results.append(out)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[2], results[3])


def test_on_meta_it_packs_and_says_its_scratch_as_the_real_one() -> None:
    facts = moe_experts.Facts(num_experts=3, top_k=2, hidden=40, intermediate=24, dtype=torch.bfloat16)
    case = moe_experts.Case(facts, 5)
    dry, real = (choose("moe_experts", facts, dry=dry).implementation for dry in (True, False))
    for weight in (case.gate_up(), case.down()):
        assert dry.pack(weight.to("meta"), facts).shape == real.pack(weight, facts).shape
    assert dry.scratch_size(facts, 5) == real.scratch_size(facts, 5) > 0
