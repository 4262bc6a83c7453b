"""Sample: one token of each row's logits, after temperature, min-p, top-k and top-p; or the largest logit.

What stays is defined on weights, so that every implementation keeps the same tokens and draws the same one, bit for bit:

    weight = exp((logit - largest) / temperature) in float32, by `exponential` below; the largest weight is 1
    mass   = floor(weight * 2**40), an integer; a token with less than 2**-40 of the likeliest one's probability has none
    min-p:   weights under min_p are dropped
    top-k:   weights under the k-th largest are dropped; all tokens tied with the k-th stay
    top-p:   of what is left, the fewest largest weights stay whose mass is at least top_p of the mass; ties with the last of them stay
    draw:    the first token, by id, at which the running mass exceeds floor(uniform * mass of all that stay)

A row may have a mask, bits of which say what is allowed: all else counts as -inf, but a nan anywhere is seen.

A temperature of 0 takes the largest logit, of equals the first. A row that holds a nan or +inf gives NOT_A_NUMBER, one in which everything
is -inf gives NOTHING_ALLOWED.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

NOT_A_NUMBER = -1
NOTHING_ALLOWED = -2
MASS_BITS = 40

LOG2_E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.693145751953125, 1.42860677e-06
TERMS = (1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0)  # of e**r, the highest power first
LOWEST = -87.0  # below it the weight is 0
SHIFT = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits


@dataclass(frozen=True, slots=True)
class Facts:
    vocab_size: int


def exponential(x: torch.Tensor) -> torch.Tensor:
    """e**x of float32 x <= 0 as 2**n * e**r, |r| <= ln(2) / 2: each product and each sum rounded to float32, so that any machine agrees."""
    clamped = x.clamp(min=LOWEST)
    shifted = clamped * torch.tensor(LOG2_E) + torch.tensor(SHIFT)
    n = shifted - torch.tensor(SHIFT)
    r = clamped - n * torch.tensor(LN2_HIGH)
    r = r - n * torch.tensor(LN2_LOW)
    power = torch.full_like(r, TERMS[0])
    for term in TERMS[1:]:
        power = power * r + torch.tensor(term)
    scale = ((n.to(torch.int32) + 127) << 23).view(torch.float32)
    return torch.where(x < LOWEST, torch.zeros_like(x), power * scale)


def forbid(logits: torch.Tensor, mask: torch.Tensor) -> None:
    """-inf for each of logits [vocab_size] whose bit in mask int32 [words] is 0; a nan stays."""
    bits = (mask[:, None] >> torch.arange(32, dtype=torch.int32)) & 1
    forbidden = bits.flatten()[: len(logits)] == 0
    logits[forbidden & ~logits.isnan()] = float("-inf")


class Reference:
    """__call__(tokens, logits, rows, temperatures, min_ps, top_ks, top_ps, uniforms, keep_weights, masks, mask_rows).

    tokens int32 [m] is written: a token id, NOT_A_NUMBER or NOTHING_ALLOWED. logits float32 [n, vocab_size] with contiguous rows; rows
    int32 [m] names those to sample, and temperatures, min_ps float32 [m], top_ks int32 [m] (0: off), top_ps, uniforms float64 [m] (in
    0 .. 1) belong to them. masks int32 [k, at least ceil(vocab_size / 32)], lowest bit first, with mask_rows int32 [m], the row of each in
    masks or -1 for no mask. The logits of a row that has a mask, or is drawn from (temperature > 0), are destroyed; with keep_weights they
    are its weights, 0 where dropped.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    def __call__(
        self,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        rows: torch.Tensor,
        temperatures: torch.Tensor,
        min_ps: torch.Tensor,
        top_ks: torch.Tensor,
        top_ps: torch.Tensor,
        uniforms: torch.Tensor,
        keep_weights: bool = False,
        masks: torch.Tensor | None = None,
        mask_rows: torch.Tensor | None = None,
    ) -> None:
        for index, row in enumerate(rows.tolist()):
            if masks is not None and mask_rows is not None and mask_rows[index] >= 0:
                forbid(logits[row], masks[int(mask_rows[index])])
            tokens[index] = self._row(
                logits[row],
                temperatures[index],
                min_ps[index],
                int(top_ks[index]),
                float(top_ps[index]),
                float(uniforms[index]),
            )

    def _row(self, logits: torch.Tensor, temperature: torch.Tensor, min_p: torch.Tensor, top_k: int, top_p: float, uniform: float) -> int:
        largest = logits.max()  # nan if any is
        if torch.isnan(largest) or largest == float("inf"):
            return NOT_A_NUMBER
        if largest == float("-inf"):
            return NOTHING_ALLOWED
        if temperature == 0:
            return int((logits == largest).nonzero()[0])
        weights = exponential((logits - largest) * (1.0 / temperature))
        weights[weights < min_p] = 0.0
        if 0 < top_k < len(weights):
            weights[weights < weights.topk(top_k).values[-1]] = 0.0
        mass = (weights.to(torch.float64) * 2.0**MASS_BITS).to(torch.int64)
        if top_p < 1.0:
            order = weights.argsort(descending=True)
            enough = mass[order].cumsum(0).to(torch.float64) >= top_p * float(mass.sum())
            last = weights[order[int(enough.nonzero()[0])]]
            weights[weights < last] = 0.0
            mass[weights == 0] = 0
        total = int(mass.sum())
        target = min(int(uniform * float(total)), total - 1)
        logits.copy_(weights)
        return int((mass.cumsum(0) > target).nonzero()[0])


@dataclass(frozen=True, slots=True)
class Case:
    """`kind` of logits: "plain", "ties" (few different values), "masked" (mostly -inf), "flat", "broken" (nan, inf, nothing allowed)."""

    vocab_size: int
    kind: str
    num_rows: int = 6

    def __str__(self) -> str:
        return f"{self.num_rows}x{self.vocab_size}-{self.kind}"

    def logits(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.vocab_size + len(self.kind))
        logits = torch.randn(self.num_rows, self.vocab_size, generator=generator) * 4
        if self.kind == "ties":
            logits = logits.round()
        elif self.kind == "masked":
            logits[torch.rand(logits.shape, generator=generator) < 0.95] = float("-inf")
            logits[:, -1] = 0.5
        elif self.kind == "flat":
            logits.fill_(1.5)
        elif self.kind == "broken":
            logits[0, -1] = float("nan")
            logits[1, 0] = float("inf")
            logits[2] = float("-inf")
            logits[3] = float("nan")
        return logits

    def parameters(self) -> tuple[torch.Tensor, ...]:
        """temperatures, min_ps, top_ks, top_ps, uniforms of as many rows: each alone, all together, none."""
        rows = [(0.0, 0.0, 0, 1.0), (1.0, 0.0, 0, 1.0), (0.7, 0.0, 5, 1.0), (1.3, 0.0, 0, 0.8), (0.9, 0.05, 0, 1.0), (1.0, 0.02, 40, 0.9)]
        rows = [rows[index % len(rows)] for index in range(self.num_rows)]
        temperatures, min_ps, top_ks, top_ps = zip(*rows)
        uniforms = torch.rand(self.num_rows, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        return (
            torch.tensor(temperatures),
            torch.tensor(min_ps),
            torch.tensor(top_ks, dtype=torch.int32),
            torch.tensor(top_ps, dtype=torch.float64),
            uniforms,
        )


def cases() -> Iterator[Case]:
    """The smallest vocabularies, awkward ones and a real one, with each kind of logits."""
    for vocab_size in (1, 17, 1000, 49152):
        for kind in ("plain", "ties", "masked", "flat", "broken"):
            yield Case(vocab_size, kind)
    yield Case(151936, "plain", 3)
