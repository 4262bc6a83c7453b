"""embedding: each token's row and nobody else's, from rows and from panels, at the edge of an unmapped page."""

import pytest
import torch

from octavo.ops import embedding, linear
from octavo.ops.op import choose
from octavo.ops.order import ORDER
from tests.ops import guard
from tests.ops.implementations import implementation

CASES = {str(case): case for case in embedding.cases()}


def run(cls: type, case: embedding.Case, ids: torch.Tensor, out_stride: int = 0) -> torch.Tensor:
    facts = case.facts
    table = guard.copies(cls.pack(case.table(), facts))
    out = guard.empty(len(ids), max(facts.width, out_stride), dtype=facts.dtype).fill_(7)
    view = out[:, out.shape[1] - facts.width :]
    cls(facts)(view, guard.copy(ids), table)
    assert torch.all(out[:, : out.shape[1] - facts.width] == 7)
    return view


@pytest.mark.parametrize("name", ORDER["cpu"]["embedding"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_rows_of_the_table_to_the_bit(name: str, case: embedding.Case) -> None:
    cls = implementation("embedding", name)
    if (reason := cls.refuses(case.facts)) is not None:
        assert "panels" in reason or "float16" in reason or "plain numbers" in reason
        return
    expected = case.numbers()[case.ids().long().clamp(0, case.facts.rows - 1)]
    if case.facts.scale != 1.0:
        expected = expected * torch.tensor(case.facts.scale).to(case.facts.dtype)
    assert torch.equal(run(cls, case, case.ids()), expected)
    assert torch.equal(run(cls, case, case.ids(), case.facts.width + 5), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tied_head_is_one_copy(dtype: torch.dtype) -> None:
    facts = embedding.Facts(rows=77, width=50, dtype=dtype, layout="panels")
    case = embedding.Case(facts, 20)
    head = linear.Facts(in_features=50, out_features=77, dtype=dtype, out_dtype=torch.float32)
    choice, head_choice = choose("embedding", facts), choose("linear", head)
    packed = head_choice.implementation.pack(case.table(), head)
    assert packed.shape == choice.implementation.pack(case.table(), facts).shape
    out = torch.empty(20, 50, dtype=dtype)
    choice.implementation(out, case.ids(), packed)
    assert torch.equal(out, case.table()[case.ids().long().clamp(0, 76)])
