"""Terms of a calibration: the seconds that each part of a step takes on one machine, fitted to steps that the engine ran there.

A step's time is taken to be a sum of parts that grow with what the step does: one for the step itself, one for each layer, row, number of
the logits, number of the hidden states and product of attention, and for each weight a time that depends on how many tokens are multiplied
with it: reading it binds when they are few, multiplying when they are many.
"""

import itertools

import msgspec
import numpy as np

from octavo.planning.work import Work

TOKENS = (1, 8, 32, 128, 512)  # numbers of tokens between which a weight's time is interpolated
_PARTS = ("step", "layer", "row", "score", "number", "attention", "prompt_attention")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. weight: of one weight, for the numbers of tokens in TOKENS."""

    step: float  # a step
    layer: float  # a layer, a step
    row: float  # a row that samples
    score: float  # a number of the logits
    number: float  # a number of a layer's hidden states
    attention: float  # a multiply-add of attention while decoding, reading of the cache included
    prompt_attention: float
    weight: list[float]

    def weights_s(self, weights: float, tokens: float) -> float:
        """Multiplying so many tokens with so many weights."""
        return weights * float(np.dot(_ramps(tokens), np.diff(self.weight, prepend=0.0)))

    def seconds(self, features: dict[str, float]) -> float:
        """Everything but the weights."""
        return sum(getattr(self, part) * features[part] for part in _PARTS)


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was measured. context: tokens that each token sees, on average."""

    work: Work
    tokens: int
    rows: int
    context: float
    seconds: float


def features(work: Work, tokens: int, rows: int, context: float) -> dict[str, float]:
    """How much of each part a step has."""
    attention = work.attention_products(tokens, context)
    is_decode = tokens == rows
    return {
        "step": 1.0,
        "layer": work.layers,
        "row": rows,
        "score": rows * work.vocabulary if work.is_last else 0,
        "number": tokens * work.layers * work.hidden,
        "attention": attention if is_decode else 0.0,
        "prompt_attention": 0.0 if is_decode else attention,
    }


def weights(work: Work, tokens: int, rows: int) -> list[tuple[float, float]]:
    """(weights, tokens multiplied with each) of a step: of the layers, of the experts that are chosen, of the head."""
    found = [(float(work.dense_products), float(tokens))]
    if work.num_experts and (chosen := work.chosen_experts(tokens)):
        found.append((chosen * work.expert_products, tokens * work.num_chosen * work.experts / work.num_experts / chosen))
    if rows:
        found.append((float(work.head_products), float(rows)))
    return found


def predict(terms: Terms, work: Work, tokens: int, rows: int, context: float) -> float:
    """Seconds of a step."""
    return terms.seconds(features(work, tokens, rows, context)) + sum(terms.weights_s(*each) for each in weights(work, tokens, rows))


def fit(steps: list[Ran]) -> Terms:
    """The terms, none negative, whose predictions are off by the least: squares of shares of what was measured."""
    matrix = np.array([_row(each) for each in steps]) / np.array([[each.seconds] for each in steps])
    found = _least_squares(matrix, np.ones(len(steps)))
    parts = dict(zip(_PARTS, found.tolist(), strict=False))
    return Terms(**parts, weight=np.cumsum(found[len(_PARTS) :]).tolist())


def _row(ran: Ran) -> list[float]:
    own = features(ran.work, ran.tokens, ran.rows, ran.context)
    ramps = sum(count * _ramps(tokens) for count, tokens in weights(ran.work, ran.tokens, ran.rows))
    return [*(own[part] for part in _PARTS), *np.asarray(ramps).tolist()]


def _ramps(tokens: float) -> np.ndarray:
    """How far into each stretch between two of TOKENS a number lies: 0 before it, 1 behind; the last goes on. The first counts in full."""
    found = [1.0]
    for low, high in itertools.pairwise(TOKENS):
        along = (tokens - low) / (high - low)
        found.append(max(0.0, along) if high == TOKENS[-1] else min(1.0, max(0.0, along)))
    return np.array(found)


def _least_squares(matrix: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The x >= 0 for which matrix @ x is nearest to `wanted` (Lawson and Hanson 1974)."""
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0.0] = 1.0
    scaled = matrix / scale
    x = np.zeros(scaled.shape[1])
    free = np.zeros(len(x), dtype=bool)
    for _ in range(10 * len(x)):
        slope = scaled.T @ (wanted - scaled @ x)
        if free.all() or slope[~free].max() < 1e-10:
            break
        free[np.argmax(np.where(free, -np.inf, slope))] = True
        while True:
            step = np.zeros_like(x)
            step[free] = np.linalg.lstsq(scaled[:, free], wanted, rcond=None)[0]
            if step[free].min(initial=1.0) > 0.0:
                break
            below = free & (step <= 0.0)
            share = np.min(x[below] / (x[below] - step[below] + 1e-300))
            x = x + share * (step - x)
            free &= x > 1e-14
        x = step
    return x / scale
