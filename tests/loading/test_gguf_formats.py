"""GGUF's number formats: each equals the gguf package's dequantization, bit for bit, whatever the blocks hold."""

import numpy as np
import pytest
import torch

from octavo.checkpoint import gguf as header
from octavo.loading.views import Blocks
from octavo.ops import gguf_blocks

HALVES_AT = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
}
SIZES = {name: (elements, size) for name, elements, size in header.TYPES.values()}
# largest, smallest, subnormal, zeros of both signs, infinities
EXTREME = np.array([65504, -65504, 6.1e-5, 5.96e-8, -5.96e-8, 0.0, -0.0, np.inf, -np.inf, 1.0], dtype=np.float16)


def random_blocks(number_format: str, count: int, seed: int) -> np.ndarray:
    """uint8 [count, bytes of a block]: random bits, scales without NaN, every extreme scale among them."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (count, SIZES[number_format][1]), dtype=np.uint8)
    for at in HALVES_AT.get(number_format, []):
        scales = random.normal(size=count).astype(np.float16) * np.float16(0.1)
        scales[: len(EXTREME)] = random.permutation(EXTREME)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks


def same_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Equal bits, but for which NaN it is where both are NaN (infinity times 0)."""
    nans = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), nans)
    np.testing.assert_array_equal(ours.view(np.uint32)[~nans], theirs.view(np.uint32)[~nans])


@pytest.mark.oracle
@pytest.mark.parametrize("number_format", list(gguf_blocks.FORMATS))
def test_equal_to_the_gguf_package(number_format: str) -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    blocks = random_blocks(number_format, 257, seed=7)
    with np.errstate(invalid="ignore", over="ignore"):
        theirs = dequantize(blocks, GGMLQuantizationType[number_format])
    ours = gguf_blocks.widen(torch.from_numpy(blocks), number_format)
    assert ours.shape == (257, SIZES[number_format][0])
    same_bits(ours.numpy(), theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("number_format", [name for name in HALVES_AT if name[0] == "Q" and not name.endswith("_K")])
def test_what_the_gguf_package_quantizes_comes_back(number_format: str) -> None:
    """Independent of the package's own dequantize: within half a step of what went in."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    values = np.random.default_rng(3).normal(size=(64, SIZES[number_format][0])).astype(np.float32)
    ours = gguf_blocks.widen(torch.from_numpy(quantize(values, GGMLQuantizationType[number_format])), number_format).numpy()
    span = values.max(1) - values.min(1) if number_format.endswith("_1") else 2 * np.abs(values).max(1)
    step = span / (2 ** int(number_format[1]) - 1)
    # the largest value of one sign alone is one step further out in the formats without a minimum
    assert (np.abs(ours - values).max(1) <= 1.1 * step).all()


@pytest.mark.parametrize("number_format", ["Q4_1", "Q6_K", "F16"])
def test_cuts_read_what_a_slice_of_the_whole_is(number_format: str) -> None:
    elements, _ = SIZES[number_format]
    blocks = random_blocks(number_format, 6 * 4 * (512 // elements), seed=1)
    lazy = Blocks.of(torch.from_numpy(blocks.reshape(-1)), number_format, (6, 4, 512))
    whole = lazy.read()
    for cuts in [
        ((0, 1, 3),),
        ((1, 2, 2),),
        ((2, 256, 256),),
        ((2, 100, 30),),
        ((2, 256, 30),),
        ((0, 2, 2), (1, 1, 2), (2, 0, 256)),
        ((2, 8, 300), (0, 5, 1)),
    ]:
        part, wanted = lazy, whole
        for axis, start, size in cuts:
            part, wanted = part.cut(axis, start, size), wanted.narrow(axis, start, size)
        assert part.shape == wanted.shape
        same_bits(part.read().numpy(), wanted.numpy())
