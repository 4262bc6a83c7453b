"""Blocks: numbers become GGUF's blocks, the inverse of octavo/ops/gguf_blocks.py. The same numbers give the same bytes, on any machine.

Codes are not merely rounded: of several scales that are tried, each with the scale that fits its codes best, a block keeps the one with the
least weighted square error, counted with the numbers that readers will see. What a number weighs: see `weights`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from octavo.ops import gguf_blocks

_K_GROUP = 32
_TRIED = [step / 10 for step in range(-8, 9)]


@dataclass(frozen=True, slots=True)
class _Run:
    """Some blocks: numbers float32 [blocks, elements], what they weigh alike."""

    numbers: torch.Tensor
    weights: torch.Tensor


def encode(numbers: torch.Tensor, number_format: str, importance: torch.Tensor | None = None) -> torch.Tensor:
    """uint8 [rows, bytes of a row] of float32 [rows, columns], whose rows are whole blocks. importance: float32 [columns], what the square
    of an error in that column costs beside others; None: all the same. KeyError for a format that is not in FORMATS.
    """
    elements, _ = gguf_blocks.SIZES[number_format]
    rows, columns = numbers.shape
    if columns % elements:
        raise ValueError(f"{columns} columns are not whole blocks of {elements}")
    weight = weights(numbers, importance if number_format in WEIGHTED else None)
    return FORMATS[number_format](_Run(numbers.reshape(-1, elements), weight.reshape(-1, elements))).view(rows, -1)


def weights(numbers: torch.Tensor, importance: torch.Tensor | None) -> torch.Tensor:
    """What the square error of each number weighs, [rows, columns]: more for the large ones, which products feel most; with an importance,
    that of its column.
    """
    spread = numbers.square().mean(-1, keepdim=True)
    if importance is None:
        return spread.sqrt() + numbers.abs()
    # columns that nothing came through in the calibration still count a little
    floor = importance.mean() * 1e-3 + 1e-30
    return (importance + floor) * (spread + numbers.square()).sqrt()


def _half(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values [blocks] as float16, in bytes [blocks, 2], and the float32 that they are read as."""
    stored = values.clamp(-65504, 65504).to(torch.float16)
    return stored[:, None].view(torch.uint8), stored.float()


def _over(values: torch.Tensor) -> torch.Tensor:
    """1 / values; 0 where they are 0."""
    return torch.where(values == 0, torch.zeros_like(values), 1 / values)


def _nibbles(codes: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, n] of codes [blocks, 2 n]: the low halves are the first n."""
    low, high = codes.to(torch.uint8).chunk(2, dim=1)
    return low | (high << 4)


def _q8_0(run: _Run) -> torch.Tensor:
    """scale f16, 32 int8."""
    stored, scale = _half(run.numbers.abs().amax(1) / 127)
    codes = (run.numbers * _over(scale)[:, None]).round_().clamp_(-127, 127)
    return torch.cat([stored, codes.to(torch.int8).view(torch.uint8)], dim=1)


def _symmetric_scale(run: _Run, least: int) -> torch.Tensor:
    """[blocks]: the scale of codes least .. -least - 1. The largest number of a block becomes about `least`, which has one step more."""
    x, w = run.numbers, run.weights
    largest = x.gather(1, x.abs().argmax(1, keepdim=True))
    best = torch.zeros(len(x))
    best_gain = torch.full((len(x),), -1.0)
    for step in _TRIED:
        codes = (x * ((least + step) * _over(largest))).round_().clamp_(least, -least - 1)
        weighted = w * codes
        xl, ll = (weighted * x).sum(1), (weighted * codes).sum(1)
        # the scale that fits these codes best, and by how much it lowers the square error
        scale = xl * _over(ll)
        gain = scale * xl
        is_better = gain > best_gain
        best = torch.where(is_better, scale, best)
        best_gain = torch.where(is_better, gain, best_gain)
    return best


def _q4_0(run: _Run) -> torch.Tensor:
    """scale f16, nibbles with 8 added."""
    stored, scale = _half(_symmetric_scale(run, -8))
    codes = (run.numbers * _over(scale)[:, None]).round_().clamp_(-8, 7).add_(8)
    return torch.cat([stored, _nibbles(codes)], dim=1)


def _q5_0(run: _Run) -> torch.Tensor:
    """scale f16, fifth bits, nibbles; of codes with 16 added."""
    stored, scale = _half(_symmetric_scale(run, -16))
    codes = (run.numbers * _over(scale)[:, None]).round_().clamp_(-16, 15).add_(16).to(torch.uint8)
    fifth = ((codes >> 4).view(-1, 4, 8) << torch.arange(8, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)
    return torch.cat([stored, fifth, _nibbles(codes & 15)], dim=1)


def _fit(run: _Run, largest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(scale, minimum), [blocks] each, at least 0: x is about scale * code - minimum, for codes 0 .. largest."""
    x, w = run.numbers, run.weights
    low, high = x.amin(1).clamp(max=0), x.amax(1)
    width = (high - low).clamp(min=0)
    sum_w, sum_x, sum_xx = w.sum(1), (w * x).sum(1), (w * x * x).sum(1)
    best_scale, best_minimum = width / largest, -low
    best_error = torch.full((len(x),), torch.inf)
    shifted = x - low[:, None]
    for step in _TRIED:
        codes = (shifted * ((largest + step) * _over(width))[:, None]).round_().clamp_(0, largest)
        weighted = w * codes
        sum_l, ll, xl = weighted.sum(1), (weighted * codes).sum(1), (weighted * x).sum(1)
        determinant = sum_w * ll - sum_l * sum_l
        scale = (sum_w * xl - sum_l * sum_x) * _over(determinant)
        minimum = (sum_l * xl - ll * sum_x) * _over(determinant)
        # a minimum cannot be of the other sign: then the scale that is best without one
        alone = xl * _over(ll)
        is_alone = minimum < 0
        scale, minimum = torch.where(is_alone, alone, scale), minimum.clamp(min=0)
        error = scale * scale * ll - 2 * scale * (xl + minimum * sum_l) + sum_xx + 2 * minimum * sum_x + minimum * minimum * sum_w
        is_better = (error < best_error) & (determinant > 0) & (scale > 0)
        best_scale = torch.where(is_better, scale, best_scale)
        best_minimum = torch.where(is_better, minimum, best_minimum)
        best_error = torch.where(is_better, error, best_error)
    return best_scale, best_minimum


def _codes_k(x: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor, largest: int) -> torch.Tensor:
    return ((x + minimum[..., None]) * _over(scale)[..., None]).round_().clamp_(0, largest)


def _q4_k(run: _Run) -> torch.Tensor:
    """d f16, dmin f16, eight scales and minimums of 6 bits in 12 bytes, nibbles of eight runs of 32."""
    blocks = len(run.numbers)
    parts = _Run(run.numbers.reshape(-1, _K_GROUP), run.weights.reshape(-1, _K_GROUP))
    scale, minimum = (one.view(blocks, 8) for one in _fit(parts, 15))
    x, w = run.numbers.view(blocks, 8, _K_GROUP), run.weights.view(blocks, 8, _K_GROUP)
    d_stored, d = _half(scale.amax(1) / 63)
    m_stored, dmin = _half(minimum.amax(1) / 63)
    scales, minimums = _best_six_bits(x, w, scale, minimum, d, dmin)
    codes = _codes_k(x, scales * d[:, None], minimums * dmin[:, None], 15)
    pairs = codes.to(torch.uint8).view(blocks, 4, 2, _K_GROUP)
    packed = (pairs[:, :, 0] | (pairs[:, :, 1] << 4)).flatten(1)
    return torch.cat([d_stored, m_stored, _pack_six_bits(scales.to(torch.uint8), minimums.to(torch.uint8)), packed], dim=1)


def _best_six_bits(
    x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor, d: torch.Tensor, dmin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the multiples of d and dmin next to each scale and minimum, those with the least error; float32 [blocks, 8] each."""
    scales = (scale * _over(d)[:, None]).round_().clamp_(0, 63)
    minimums = (minimum * _over(dmin)[:, None]).round_().clamp_(0, 63)
    best = (scales, minimums)
    best_error = torch.full(scales.shape, torch.inf)
    for up in (0, -1, 1):
        for more in (0, -1, 1):
            tried, tried_minimum = (scales + up).clamp(0, 63), (minimums + more).clamp(0, 63)
            real, real_minimum = tried * d[:, None], tried_minimum * dmin[:, None]
            codes = _codes_k(x, real, real_minimum, 15)
            error = (codes.mul_(real[..., None]).sub_(real_minimum[..., None]).sub_(x).square_() * w).sum(-1)
            is_better = error < best_error
            best = (torch.where(is_better, tried, best[0]), torch.where(is_better, tried_minimum, best[1]))
            best_error = torch.where(is_better, error, best_error)
    return best


def _pack_six_bits(scales: torch.Tensor, minimums: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, 12] of [blocks, 8] each: the inverse of gguf_blocks._k_scales."""
    first = (scales[:, :4] & 63) | ((scales[:, 4:] >> 4) << 6)
    second = (minimums[:, :4] & 63) | ((minimums[:, 4:] >> 4) << 6)
    third = (scales[:, 4:] & 15) | ((minimums[:, 4:] & 15) << 4)
    return torch.cat([first, second, third], dim=1)


def _f32(run: _Run) -> torch.Tensor:
    return run.numbers.contiguous().view(torch.uint8)


def _f16(run: _Run) -> torch.Tensor:
    return run.numbers.to(torch.float16).view(torch.uint8)


def _bf16(run: _Run) -> torch.Tensor:
    return run.numbers.to(torch.bfloat16).view(torch.uint8)


# the formats in which some numbers can be held to more than others
WEIGHTED = frozenset({"Q4_0", "Q5_0", "Q4_K"})

FORMATS: dict[str, Callable[[_Run], torch.Tensor]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q5_0": _q5_0,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
}
