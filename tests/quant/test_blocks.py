"""Blocks that octavo writes: the gguf package reads them, they are at least as near as its own, and nothing odd makes them NaN."""

import numpy as np
import pytest
import torch

from octavo.ops import gguf_blocks
from octavo.quant import blocks

CODED = ("Q4_0", "Q5_0", "Q8_0", "Q4_K")
WIDTH = {"Q4_0": 1 / 8, "Q5_0": 1 / 16, "Q8_0": 1 / 127, "Q4_K": 1 / 7}  # a step, for numbers up to 1 on both sides


def numbers(rows: int = 24, columns: int = 512) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(5)) * torch.logspace(-3, 1, rows)[:, None]


def decoded(packed: torch.Tensor, number_format: str) -> torch.Tensor:
    return gguf_blocks.widen(packed.reshape(-1, gguf_blocks.SIZES[number_format][1]), number_format).view(len(packed), -1)


@pytest.mark.oracle
@pytest.mark.parametrize("number_format", CODED)
def test_the_gguf_package_reads_what_octavo_reads(number_format: str) -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    packed = blocks.encode(numbers(), number_format)
    theirs = dequantize(packed.numpy(), GGMLQuantizationType[number_format])
    np.testing.assert_array_equal(theirs, decoded(packed, number_format).numpy())


@pytest.mark.oracle
@pytest.mark.parametrize("number_format", ["Q4_0", "Q5_0", "Q8_0"])
def test_errors_are_no_larger_than_those_of_the_gguf_package(number_format: str) -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    x = numbers()
    ours = (decoded(blocks.encode(x, number_format), number_format) - x).square().sum(1)
    packed = torch.from_numpy(quantize(x.numpy(), GGMLQuantizationType[number_format]))
    theirs = (decoded(packed, number_format) - x).square().sum(1)
    assert (ours <= 1.001 * theirs).all()


@pytest.mark.parametrize("number_format", CODED)
def test_every_number_is_about_a_step_near(number_format: str) -> None:
    x = numbers()
    elements = 32
    largest = x.view(len(x), -1, elements).abs().amax(-1).repeat_interleave(elements, 1)
    assert ((decoded(blocks.encode(x, number_format), number_format) - x).abs() <= 1.3 * WIDTH[number_format] * largest).all()


def test_q4_k_keeps_what_it_can_hold_and_is_nearer_than_rounding_between_the_extremes() -> None:
    held = torch.arange(16.0).repeat(4, 16) * 0.5 - 2.0
    assert (decoded(blocks.encode(held, "Q4_K"), "Q4_K") - held).abs().max() < 0.02
    x = numbers()
    runs = x.view(len(x), -1, 32)
    low, step = runs.amin(-1, keepdim=True), (runs.amax(-1, keepdim=True) - runs.amin(-1, keepdim=True)) / 15
    plain = ((runs - low) / step).round() * step + low  # with a scale and a minimum of 32 bits each
    ours = (decoded(blocks.encode(x, "Q4_K"), "Q4_K") - x).square().sum()
    assert ours < (plain.view_as(x) - x).square().sum()


@pytest.mark.parametrize("number_format", CODED)
@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e-9, -1e-30, 3e4])
def test_blocks_of_one_number(number_format: str, value: float) -> None:
    x = torch.full((2, 256), value)
    y = decoded(blocks.encode(x, number_format), number_format)
    assert y.isfinite().all()
    # what is below the least scale of 16 bits becomes 0
    assert (y - x).abs().max() <= 0.01 * abs(value) + 1e-5


@pytest.mark.parametrize("number_format", sorted(blocks.WEIGHTED))
def test_what_matters_is_kept_nearer(number_format: str) -> None:
    x = numbers()
    importance = torch.ones(x.shape[1])
    importance[::16] = 1000.0

    def error(packed: torch.Tensor) -> torch.Tensor:
        return (decoded(packed, number_format) - x)[:, ::16].square().sum()

    assert error(blocks.encode(x, number_format, importance)) < 0.6 * error(blocks.encode(x, number_format))


def test_a_row_has_the_same_bytes_in_any_company() -> None:
    x = numbers()
    for number_format in CODED:
        whole = blocks.encode(x, number_format)
        assert torch.equal(whole, torch.cat([blocks.encode(row[None], number_format) for row in x]))
