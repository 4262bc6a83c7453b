"""Cache codes: the exact arithmetic of every coded cache format, in plain torch; kernels must equal `encode` bit for bit.

All of it is float32, one rounding an operation; numbers between two codes go to the nearest, ties to the even one. Larger numbers than the
largest become the largest. What is not a number: with a layer's scale it is itself not a number afterwards, and infinity is the largest;
with scales of its own, a vector (a group) that holds a number which is not finite is nan as a whole.
"""

import torch

from octavo.config.cache_formats import GROUP, CacheFormat
from octavo.ops.weights import FP4_E2M1

LARGEST = {"float8_e4m3": 448.0, "float8_e5m2": 57344.0, "int8": 127.0, "uint4": 15.0, "float4_e2m1": 6.0}
NAN = 0x7F  # the one nan that is written, in both 8 bit floats
_BF16_NAN = 0x7FC0  # torch makes another one with each of its loops
FLOATS = {"float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}


def encode(kept: CacheFormat, x: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """x [..., head_dim] as codes uint8 [..., head_dim], one a byte, and side bytes uint8 [..., side_bytes]. scale: the layer's."""
    x = x.to(torch.float32)
    if kept.scale == "layer":
        return _codes(kept.code, x / scale), x.new_empty((*x.shape[:-1], 0), dtype=torch.uint8)
    if kept.scale == "group":
        groups = x.unflatten(-1, (-1, GROUP))
        side = _codes("float8_e4m3", groups.abs().amax(-1) / (_single(scale) * 6.0))
        side = torch.where(_is_broken(groups), NAN, side).to(torch.uint8)
        codes = _divided(kept.code, groups, side.view(torch.float8_e4m3fn).to(torch.float32) * scale)
        return codes.flatten(-2), side
    if kept.code == "uint4":
        # 0.0 + makes -0 0, so that it does not matter which of the two is found
        minimum = (0.0 + x.amin(-1)).to(torch.bfloat16).to(torch.float32)
        step = (0.0 + (x.amax(-1) - x.amin(-1)) / 15.0).to(torch.bfloat16).to(torch.float32)
        is_broken = _is_broken(x) | ~step.isfinite() | ~minimum.isfinite()
        step = torch.where(is_broken, torch.nan, step)
        side = torch.stack((step, minimum), -1).to(torch.bfloat16).view(torch.int16)
        side = torch.where(is_broken[..., None], _BF16_NAN, side).to(torch.int16).view(torch.uint8)
        return _divided(kept.code, x - minimum[..., None], step), side
    step = torch.where(_is_broken(x), torch.nan, x.abs().amax(-1) / LARGEST[kept.code])
    return _divided(kept.code, x, step), step[..., None].contiguous().view(torch.uint8)


def decode(kept: CacheFormat, codes: torch.Tensor, side: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """float32 of what `encode` gives, [..., head_dim]."""
    numbers = _numbers(kept.code, codes)
    if kept.scale == "layer":
        return numbers * scale
    side = side.contiguous()
    if kept.scale == "group":
        steps = side.view(torch.float8_e4m3fn).to(torch.float32) * scale
        return (numbers.unflatten(-1, (-1, GROUP)) * steps[..., None]).flatten(-2)
    if kept.code == "uint4":
        step, minimum = side.view(torch.bfloat16).to(torch.float32).split(1, -1)
        return numbers * step + minimum
    return numbers * side.view(torch.float32)


def _single(number: float) -> float:
    return float(torch.tensor(number, dtype=torch.float32))


def _is_broken(x: torch.Tensor) -> torch.Tensor:
    return ~x.isfinite().all(-1)


def _divided(code: str, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """Codes of x / step; 0 where the step is 0 or nan, whatever stands there."""
    is_usable = step > 0
    return torch.where(is_usable[..., None], _codes(code, x / torch.where(is_usable, step, 1.0)[..., None]), 0)


def _codes(code: str, x: torch.Tensor) -> torch.Tensor:
    """uint8 codes of numbers that are scaled already."""
    x = x.clamp(-LARGEST[code], LARGEST[code])
    if code in FLOATS:
        return torch.where(x.isnan(), NAN, x.to(FLOATS[code]).view(torch.uint8))
    if code == "int8":
        return x.round().nan_to_num(0.0).to(torch.int8).view(torch.uint8)
    if code == "uint4":
        return x.round().nan_to_num(0.0).clamp(min=0.0).to(torch.uint8)
    size = x.abs()
    fine, middle, coarse = (size * 2).round(), size.round() + 2, (size / 2).round() + 4
    number = torch.where(size < 2, fine, torch.where(size < 4, middle, coarse)).nan_to_num(0.0)
    return number.to(torch.uint8) | (x.signbit().to(torch.uint8) << 3)


def _numbers(code: str, codes: torch.Tensor) -> torch.Tensor:
    if code in FLOATS:
        return codes.view(FLOATS[code]).to(torch.float32)
    if code == "int8":
        return codes.view(torch.int8).to(torch.float32)
    if code == "uint4":
        return codes.to(torch.float32)
    return torch.tensor(FP4_E2M1)[codes.long()]
