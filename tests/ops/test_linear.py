"""linear: every implementation over its cases against float64, at the edge of an unmapped page; a row alone is the row in any batch."""

import functools

import pytest
import torch

from octavo.ops import linear, weights, weights_cases
from octavo.ops.cpu import coded_panels
from octavo.ops.op import choose
from octavo.ops.order import ORDER
from tests.ops import guard
from tests.ops.implementations import implementation
from tests.tolerances import ATOL, RTOL

CASES = {str(case): case for case in linear.cases()}


@functools.cache
def packed(cls: type, case: linear.Case) -> torch.Tensor | tuple[torch.Tensor, ...]:
    return guard.copies(cls.pack(case.weight(), case.facts))


def run(cls: type, case: linear.Case, rows: slice = slice(None)) -> torch.Tensor:
    """The result of some rows of a case; every tensor ends at an unmapped page."""
    facts = case.facts
    whole = guard.copy(case.x()[rows])
    x = whole[:, whole.shape[1] - facts.in_features :]  # the last row ends where the page does
    out = guard.empty(len(whole), max(case.out_stride, facts.out_features), dtype=facts.result).fill_(7)
    bias = case.bias()
    view = out[:, out.shape[1] - facts.out_features :]
    cls(facts)(view, x, packed(cls, case), None if bias is None else guard.copy(bias))
    assert torch.all(out[:, : out.shape[1] - facts.out_features] == 7)
    return view


def exact(case: linear.Case) -> torch.Tensor:
    bias = case.bias()
    wide = case.x()[:, -case.facts.in_features :].double() @ case.numbers().double().t()
    return wide if bias is None else wide + bias.double()


@pytest.mark.parametrize("name", ORDER["cpu"]["linear"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_against_float64(name: str, case: linear.Case) -> None:
    cls = implementation("linear", name)
    if (reason := cls.refuses(case.facts)) is not None:
        assert any(words in reason for words in ("float16", "plain numbers", "are coded", "are not coded", "panels"))
        return
    if case.facts.activation is not None:
        slow = run(linear.Reference, case)
        assert torch.equal(run(cls, case), slow)
        return
    key = str(torch.promote_types(case.facts.dtype, torch.float32) if case.facts.result == torch.float32 else case.facts.result)[6:]
    if case.facts.layout is not None:  # its numbers may be rounded to the dtype, or not
        key = str(torch.promote_types(case.facts.dtype, torch.bfloat16) if case.facts.result == torch.float32 else case.facts.result)[6:]
    torch.testing.assert_close(run(cls, case).double(), exact(case), atol=ATOL[key], rtol=RTOL[key])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("depth", "width"), [(576, 130), (33, 17), (2051, 48)])
def test_a_row_alone_has_the_bits_it_has_in_any_batch(dtype: torch.dtype, depth: int, width: int) -> None:
    cls = implementation("linear", "cpu.linear_tile")
    facts = linear.Facts(in_features=depth, out_features=width, dtype=dtype, out_dtype=torch.float32)
    case = linear.Case(facts, 100)
    alone = torch.cat([run(cls, case, slice(r, r + 1)) for r in range(100)])
    for rows in (1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 64, 100):
        for start in {0, 100 - rows, (100 - rows) // 2}:
            assert torch.equal(run(cls, case, slice(start, start + rows)), alone[start : start + rows]), (rows, start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "layout", [weights_cases.LAYOUTS[0], weights_cases.LAYOUTS[6], weights.Blocks("Q4_1"), weights.Blocks("Q6_K")], ids=str
)
def test_a_row_times_a_coded_weight_has_the_bits_it_has_in_any_batch(dtype: torch.dtype, layout: weights.Layout) -> None:
    cls = implementation("linear", "cpu.linear_decoded")
    facts = linear.Facts(in_features=256, out_features=53, dtype=dtype, out_dtype=torch.float32, layout=layout)
    case = linear.Case(facts, 30)
    alone = torch.cat([run(cls, case, slice(r, r + 1)) for r in range(30)])
    for rows in (1, 2, 3, 4, 5, 7, 8, 9, 17, 30):
        for start in {0, 30 - rows, (30 - rows) // 2}:
            assert torch.equal(run(cls, case, slice(start, start + rows)), alone[start : start + rows]), (rows, start)


IN_PANELS = [layout for layout in weights_cases.LAYOUTS if coded_panels.recipe(layout) is not None]


@pytest.mark.parametrize("layout", IN_PANELS, ids=weights_cases.name)
def test_nothing_of_a_weight_in_panels_is_rounded_and_a_row_has_its_bits_in_any_batch(layout: weights.Layout) -> None:
    cls = implementation("linear", "cpu.linear_coded")
    facts = linear.Facts(in_features=512, out_features=83, dtype=torch.bfloat16, out_dtype=torch.float32, has_bias=True, layout=layout)
    if cls.refuses(facts) is not None:
        pytest.skip("this CPU has no panels of codes")
    case = linear.Case(facts, 35)
    whole, bias, weight = run(cls, case), case.bias(), case.weight()
    assert bias is not None
    assert isinstance(weight, tuple)
    is_whole = getattr(layout, "code", "") not in ("nf4", "fp4_bnb")  # whose codes are not numbers of bf16
    numbers = weights.decode(layout, weight, facts.out_features, facts.in_features).double()
    key = "float32" if is_whole else "bfloat16"
    torch.testing.assert_close(whole.double(), case.x().double() @ numbers.t() + bias.double(), atol=ATOL[key], rtol=RTOL[key])
    for rows in (1, 2, 3, 4, 7, 8, 9, 25):
        for start in {0, 35 - rows, (35 - rows) // 2}:
            assert torch.equal(run(cls, case, slice(start, start + rows)), whole[start : start + rows]), (rows, start)


@pytest.mark.parametrize("layout", IN_PANELS, ids=weights_cases.name)
def test_panels_of_codes_have_the_stored_bytes_and_say_so_on_meta(layout: weights.Layout) -> None:
    weight = weights_cases.random(layout, 64, 512)
    packed = coded_panels.pack(layout, weight, 64, 512)
    on_meta = coded_panels.pack(layout, tuple(tensor.to("meta") for tensor in weight), 64, 512)
    assert [(tensor.shape, tensor.dtype) for tensor in on_meta] == [(tensor.shape, tensor.dtype) for tensor in packed]
    stored, kept = (sum(tensor.nbytes for tensor in tensors) for tensors in (weight, packed))
    assert stored <= kept <= 1.02 * stored


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_activations_of_zeros_and_of_what_is_not_finite(dtype: torch.dtype) -> None:
    """A row of zeros gives the bias; one with a number that is not finite gives nan, and no other row does."""
    facts = linear.Facts(in_features=70, out_features=53, dtype=dtype, has_bias=True, layout=linear.INT8, activation="int8_group")
    case = linear.Case(facts, 6)
    x, bias = case.x(), case.bias()
    assert bias is not None
    x[1] = 0
    x[2, 69], x[3, 0], x[4, 5] = float("nan"), float("inf"), float("-inf")
    for name in ORDER["cpu"]["linear"]:
        cls = implementation("linear", name)
        if cls.refuses(facts) is None:
            out = torch.empty(6, 53, dtype=dtype)
            cls(facts)(out, x, cls.pack(case.weight(), facts), bias)
            assert torch.equal(out[1], bias), name
            assert out[2:5].isnan().all(), name
            assert out[[0, 1, 5]].isfinite().all(), name


@pytest.mark.parametrize("activation", ["int8_group", "int8_token", "int8_static"])
def test_int8_products_are_near_those_of_the_numbers(activation: linear.Activation) -> None:
    facts = linear.Facts(in_features=576, out_features=53, dtype=torch.float32, layout=linear.INT8, activation=activation)
    case = linear.Case(facts, 9)
    wanted = exact(case)
    near = run(implementation("linear", "cpu.linear_int8"), case).double()
    assert ((near - wanted).norm() / wanted.norm()) < 0.015


@pytest.mark.parametrize("activation", ["int8_group", "int8_token", "int8_static"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_coded_row_has_the_bits_it_has_in_any_batch(dtype: torch.dtype, activation: linear.Activation) -> None:
    cls = implementation("linear", "cpu.linear_int8")
    facts = linear.Facts(in_features=259, out_features=53, dtype=dtype, out_dtype=torch.float32, layout=linear.INT8, activation=activation)
    case = linear.Case(facts, 30)
    alone = torch.cat([run(cls, case, slice(r, r + 1)) for r in range(30)])
    for rows in (1, 2, 3, 7, 8, 9, 17, 30):
        for start in {0, 30 - rows, (30 - rows) // 2}:
            assert torch.equal(run(cls, case, slice(start, start + rows)), alone[start : start + rows]), (rows, start)


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    facts = linear.Facts(in_features=70, out_features=333, dtype=torch.bfloat16)
    case = linear.Case(facts, 21)
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(run(implementation("linear", "cpu.linear_tile"), case))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(48, 64), (17, 33), (3, 5, 7), (2, 16, 9)])
def test_packing_keeps_every_weight_and_says_its_size_on_meta(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    from octavo.ops.cpu import panels

    weight = torch.randn(shape, generator=torch.Generator().manual_seed(4)).to(dtype)
    packed = panels.pack(weight)
    on_meta = panels.pack(weight.to("meta"))
    assert on_meta.is_meta
    assert (on_meta.shape, on_meta.dtype) == (packed.shape, packed.dtype)
    for index in range(shape[0]) if len(shape) == 3 else (...,):
        assert torch.equal(panels.unpack(packed[index], *shape[-2:]), weight[index])
    assert packed.count_nonzero() == weight.count_nonzero()  # what is added is zero


def test_refusals_say_why() -> None:
    facts = linear.Facts(in_features=8, out_features=8, dtype=torch.float16)
    choice = choose("linear", facts)
    assert choice.name == "reference"
    assert choice.refusals == [
        "cpu.linear_tile: dtype float16 is neither float32 nor bfloat16",
        "cpu.linear_int8: activations are not coded",
        "cpu.linear_coded: the weight is plain numbers",
        "cpu.linear_decoded: the weight is plain numbers",
    ]
