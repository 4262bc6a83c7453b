"""Rope: the tables of cosines and sines that rotate queries and keys, one for each way that a model rotates.

Frequencies are those of transformers' modeling_rope_utils (whose formulas come from the papers named at each function), computed in
float32. Two ways depend there on the length of the sequence that happens to be computed, which would make a token's rotation depend on how
a prompt was cut into steps. Here the longest length that the model is run with decides, once, for every token:
`dynamic` up to max_position_embeddings is plain rotation, and beyond it the base belongs to max_length; `longrope` takes its short
factors if max_length is within the original length and its long ones otherwise. Both equal transformers for one forward of that length.
"""

import math

import torch
from torch import nn

from octavo.config.rope import RopeConfig
from octavo.layers.choices import Choices
from octavo.layers.stored import Layer
from octavo.quant.format import Scheme

_ROWS = 8192  # of a table that are made at once, which bounds what that takes beside it


def frequencies(rope: RopeConfig, max_length: int) -> tuple[torch.Tensor, float]:
    """Radians per position of each pair, float32 [dim / 2], and the factor on cosines and sines."""
    exponents = torch.arange(0, rope.dim, 2, dtype=torch.float32, device="cpu") / rope.dim
    plain = 1.0 / rope.theta**exponents
    if rope.kind == "default":
        return plain, 1.0
    if rope.kind == "linear":
        return plain / _factor(rope), 1.0
    if rope.kind == "dynamic":
        return _dynamic(rope, exponents, max_length), 1.0
    if rope.kind == "llama3":
        return _llama3(rope, plain), 1.0
    if rope.kind == "yarn":
        return _yarn(rope, exponents), _yarn_scale(rope)
    return _longrope(rope, exponents, max_length), _longrope_scale(rope)


def _factor(rope: RopeConfig) -> float:
    return rope.length / rope.original_length if rope.factor is None else rope.factor


def _dynamic(rope: RopeConfig, exponents: torch.Tensor, max_length: int) -> torch.Tensor:
    """NTK-aware scaling of the base, after bloc97 and emozilla."""
    factor = _factor(rope)
    stretch = factor * max(max_length, rope.length) / rope.length - (factor - 1)
    theta = rope.theta * stretch ** (rope.dim / (rope.dim - 2))
    return torch.reciprocal(theta**exponents)


def _llama3(rope: RopeConfig, plain: torch.Tensor) -> torch.Tensor:
    """Llama 3.1: long waves are slowed by the factor, short ones kept, those between interpolated."""
    factor, low, high, length = _factor(rope), rope.low_freq_factor, rope.high_freq_factor, rope.original_length
    waves = 2 * math.pi / plain
    slowed = torch.where(waves > length / low, plain / factor, plain)
    smooth = (length / waves - low) / (high - low)
    between = (waves <= length / low) & (waves >= length / high)
    return torch.where(between, (1 - smooth) * slowed / factor + smooth * slowed, slowed)


def _yarn(rope: RopeConfig, exponents: torch.Tensor) -> torch.Tensor:
    """YaRN (arXiv 2309.00071): pairs that turn often keep their speed, pairs that turn seldom are slowed."""

    def pair_turning(turns: float) -> float:
        return rope.dim * math.log(rope.original_length / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair_turning(rope.beta_fast or 32.0), pair_turning(rope.beta_slow or 1.0)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    ramp = (torch.arange(rope.dim // 2, dtype=torch.float32, device="cpu") - low) / ((high - low) or 0.001)
    kept = 1 - ramp.clamp(0, 1)
    speeds = rope.theta**exponents
    return 1.0 / (_factor(rope) * speeds) * (1 - kept) + 1.0 / speeds * kept


def _yarn_scale(rope: RopeConfig) -> float:
    def magnitude(scale: float) -> float:
        return 1.0 if _factor(rope) <= 1 else 0.1 * scale * math.log(_factor(rope)) + 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return magnitude(rope.mscale) / magnitude(rope.mscale_all_dim)
    return magnitude(1.0)


def _longrope(rope: RopeConfig, exponents: torch.Tensor, max_length: int) -> torch.Tensor:
    """LongRoPE (arXiv 2402.13753): a factor of its own for each pair."""
    factors = rope.long_factor if max_length > rope.original_length else rope.short_factor
    return 1.0 / (torch.tensor(factors, dtype=torch.float32, device="cpu") * rope.theta**exponents)


def _longrope_scale(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    factor = _factor(rope)
    return 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(rope.original_length))


class Rope(Layer):
    """One table, float32 [max_length, dim]: for each position the cosines of its pairs, then the sines."""

    def __init__(self, config: RopeConfig, max_length: int) -> None:
        super().__init__()
        self.config = config
        self.max_length = max_length
        self.dim = config.dim

    def create(self, scheme: Scheme, device: torch.device, path: str) -> None:
        self.cos_sin = nn.Buffer(torch.empty(self.max_length, self.dim, dtype=torch.float32, device=device))

    def finish(self, choices: Choices) -> None:
        if self.cos_sin.is_meta:
            return
        speeds, scale = frequencies(self.config, self.max_length)
        for start in range(0, self.max_length, _ROWS):
            rows = self.cos_sin[start : start + _ROWS]
            angles = torch.arange(start, start + len(rows), dtype=torch.float32)[:, None] * speeds
            torch.mul(angles.cos(), scale, out=rows[:, : self.dim // 2])
            torch.mul(angles.sin(), scale, out=rows[:, self.dim // 2 :])


class Ropes(nn.ModuleList):
    """The tables of a model: one for each way that its layers rotate."""

    def __init__(self, configs: tuple[RopeConfig, ...], max_length: int) -> None:
        self._ways = list(dict.fromkeys(configs))
        super().__init__(Rope(config, max_length) for config in self._ways)

    def of(self, config: RopeConfig) -> Rope:
        return self[self._ways.index(config)]  # type: ignore[return-value]
