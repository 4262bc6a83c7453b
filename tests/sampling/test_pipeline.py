"""The pipeline: each row's token is its own affair, the shares are right, and what fails fails alone."""

import math

import numpy as np
import pytest
import torch

from octavo.errors import OctavoError
from octavo.protocol.columns import pack
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import StepMasks
from octavo.sampling.random import uniforms
from tests.sampling.rows import OUTPUTS_AT, PROMPT, entries, new_row, noise, pipeline_of, sample
from tests.tolerances import ATOL

VOCABULARIES = (1, 17, 49152)
MIXED = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 0.9, "min_p": 0.05, "repetition_penalty": 1.3},
    {"temperature": 1.0, "top_k": 40, "top_p": 0.9, "logprobs": 3, "frequency_penalty": 0.4},
    {"logprobs": 2, "presence_penalty": 1.0},
    {"temperature": 1.0, "logit_bias": {0: 2.0}, "bad_words_token_ids": [[0, 0]]},
]


@pytest.mark.parametrize("vocab_size", VOCABULARIES)
@pytest.mark.parametrize("mode", ["fast", "reference"])
def test_greedy_takes_the_first_of_the_largest(vocab_size: int, mode: str) -> None:
    logits = noise(3, vocab_size)
    logits[1] = 2.0
    logits[2, -1] = logits[2, vocab_size // 2] = 50.0
    pipeline = pipeline_of([new_row(row) for row in range(3)], vocab_size, mode=mode)
    assert sample(pipeline, logits, [0, 1, 2]).tokens.tolist() == [int(logits[0].argmax()), 0, vocab_size // 2]


@pytest.mark.parametrize("vocab_size", VOCABULARIES)
def test_fast_and_reference_draw_the_same(vocab_size: int) -> None:
    logits = noise(len(MIXED), vocab_size)
    numbers, drawn = list(range(len(MIXED))), []
    for mode in ("fast", "reference"):
        pipeline = pipeline_of([new_row(row, seed=row + 7, **MIXED[row]) for row in numbers], vocab_size, mode=mode)
        steps = range(1 if vocab_size > 1000 else 4)
        drawn.append([sample(pipeline, logits, numbers, [OUTPUTS_AT + step] * len(MIXED)).tokens.tolist() for step in steps])
    assert drawn[0] == drawn[1]


def test_batch_mates_order_and_restarts_change_nothing() -> None:
    vocab_size, steps = 1000, 6
    logits = [noise(len(MIXED), vocab_size, seed) for seed in range(steps)]
    together = pipeline_of([new_row(row, seed=100 + row, **parameters) for row, parameters in enumerate(MIXED)], vocab_size)
    order = [5, 2, 7, 0, 1, 6, 3, 4]
    drawn = np.stack([sample(together, logits[s][order], order, [OUTPUTS_AT + s] * len(order)).tokens for s in range(steps)])
    for place, row in enumerate(order):
        alone = pipeline_of([new_row(9, seed=100 + row, **MIXED[row])], vocab_size)
        tokens: list[int] = []
        for step in range(steps):
            if step == 3:  # preempted, and begun again with what it had
                alone.remove_row(9)
                alone.add_row(new_row(11, seed=100 + row, output=tokens, **MIXED[row]))
            got = sample(alone, logits[step][row : row + 1], [9 if step < 3 else 11], [OUTPUTS_AT + step])
            tokens.append(int(got.tokens[0]))
        assert tokens == drawn[:, place].tolist(), MIXED[row]


def test_seeds_and_positions_decide() -> None:
    logits = noise(1, 1000).expand(40, -1)
    row_of = {"temperature": 1.5}
    pipeline = pipeline_of([new_row(0, seed=3, **row_of), new_row(1, seed=3, **row_of), new_row(2, seed=4, **row_of)], 1000)

    def draw(row: int) -> list[int]:
        return [int(sample(pipeline, logits[:1], [row], [position]).tokens[0]) for position in range(3, 40)]

    assert draw(0) == draw(1) == draw(0)
    assert draw(0) != draw(2)
    assert len(set(draw(0))) > 10


def test_uniforms_are_uniform_and_independent() -> None:
    seeds = np.arange(64, dtype=np.uint64).repeat(512)
    values = uniforms(seeds, np.tile(np.arange(512), 64))
    assert (values >= 0).all()
    assert (values < 1).all()
    counts = np.histogram(values, 64, (0, 1))[0]
    assert chi_square(counts, np.full(64, 512.0)) < critical(63)
    pairs = np.histogram2d(values[:-1], values[1:], 16, [[0, 1], [0, 1]])[0].ravel()
    assert chi_square(pairs, np.full(256, pairs.sum() / 256)) < critical(255)
    assert uniforms(np.array([2**64 - 1], np.uint64), [2**31])[0] == uniforms(np.array([2**64 - 1], np.uint64), [2**31])[0]


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def critical(freedom: int) -> float:
    """The value that chance exceeds once in a thousand (Wilson and Hilferty)."""
    return freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


def shares(logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """The distribution, by the textbook: temperature, min-p, top-k, then the fewest that reach top-p."""
    p = torch.softmax(logits.double() / temperature, 0).numpy()
    p[p < min_p * p.max()] = 0
    order = np.argsort(-p, kind="stable")
    if top_k:
        p[order[top_k:]] = 0
    p /= p.sum()
    enough = int(np.argmax(np.cumsum(p[order]) >= top_p - 1e-12)) if top_p < 1 else len(p)
    p[order[enough + 1 :]] = 0
    return np.asarray(p / p.sum())


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [(1.0, 0, 1.0, 0.0), (0.6, 0, 1.0, 0.0), (1.5, 5, 1.0, 0.0), (1.0, 0, 0.7, 0.0), (1.0, 0, 1.0, 0.1), (1.2, 8, 0.8, 0.02)],
)
def test_tokens_come_as_often_as_they_should(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    (logits,) = noise(1, 17, seed=4)
    expected = shares(logits, temperature, top_k, top_p, min_p)
    rows, repeats = 64, 100
    parameters = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    pipeline = pipeline_of([new_row(row, seed=row, **parameters) for row in range(rows)])
    counts = np.zeros(17)
    for position in range(repeats):
        drawn = sample(pipeline, logits.expand(rows, -1), list(range(rows)), [OUTPUTS_AT + position] * rows).tokens
        counts += np.bincount(drawn, minlength=17)
    kept = expected > 0
    assert counts[~kept].sum() == 0
    likely = expected * rows * repeats >= 5  # rarer ones together
    observed = np.append(counts[kept & likely], counts[kept & ~likely].sum())
    wanted = np.append(expected[kept & likely], expected[kept & ~likely].sum()) * rows * repeats
    wanted[-1] = max(wanted[-1], 1e-9)
    assert chi_square(observed, wanted) < critical(max(1, int((kept & likely).sum()) - 1)) + (25 if (kept & ~likely).any() else 0)


@pytest.mark.parametrize("parameters", [{"temperature": 1.0, "top_p": 1e-9}, {"temperature": 2.0, "top_k": 1}, {"temperature": 1e-4}])
def test_limits_that_are_as_good_as_greedy(parameters: dict[str, float]) -> None:
    logits = noise(1, 1000)
    pipeline = pipeline_of([new_row(0, seed=5, **parameters)], 1000)
    assert sample(pipeline, logits, [0]).tokens.tolist() == [int(logits.argmax())]


@pytest.mark.parametrize("vocab_size", VOCABULARIES)
def test_a_broken_row_fails_alone(vocab_size: int) -> None:
    logits = noise(len(MIXED), vocab_size)
    rows = list(range(len(MIXED)))
    want = sample(pipeline_of([new_row(row, seed=row, **MIXED[row]) for row in rows], vocab_size), logits, rows)
    for broken in rows if vocab_size < 1000 else (0, 5):
        for value in (math.nan, math.inf):
            pipeline = pipeline_of([new_row(row, seed=row, **MIXED[row]) for row in rows], vocab_size)
            spoilt = logits.clone()
            spoilt[broken, vocab_size // 2] = value
            got = sample(pipeline, spoilt, rows)
            assert [index for index, _ in got.errors] == [broken]
            assert "not finite" in got.errors[0][1]
            assert got.tokens[broken] == -1
            assert np.delete(got.tokens, broken).tolist() == np.delete(want.tokens, broken).tolist()
            assert got.logprob_rows.tolist() == [index for index in want.logprob_rows.tolist() if index != broken]


@pytest.mark.parametrize("parameters", [{"allowed_token_ids": [1]}, {"bad_words_token_ids": [[16]]}])
def test_a_constraint_does_not_hide_a_broken_row(parameters: dict[str, object]) -> None:
    logits = noise(1, 17)
    logits[0, 16] = math.nan
    got = sample(pipeline_of([new_row(0, **parameters)]), logits, [0])
    assert (got.tokens.tolist(), len(got.errors)) == ([-1], 1)


def test_constraints_that_leave_nothing_fail_alone() -> None:
    rows = [new_row(0), new_row(1, allowed_token_ids=[4], bad_words_token_ids=[[4]]), new_row(2, allowed_token_ids=[4])]
    got = sample(pipeline_of(rows), noise(3, 17), [0, 1, 2])
    assert got.tokens.tolist()[1:] == [-1, 4]
    assert got.errors == [(1, "no token is left that the request's constraints allow")]


def test_masks_and_forced_tokens() -> None:
    logits = noise(4, 40)
    rows = [new_row(row, temperature=temperature, seed=row, logprobs=1) for row, temperature in enumerate((0.0, 1.0, 1.0, 0.0))]
    bits = np.zeros((2, 64), np.uint8)
    bits[0, [7, 39]] = 1
    bits[1, 38] = 1
    masks = StepMasks(
        1,
        rows=pack([0, 1]),
        words=2,
        masks=np.packbits(bits, axis=1, bitorder="little").tobytes(),
        forced_rows=pack([2]),
        forced_tokens=pack([33]),
    )
    got = sample(pipeline_of(rows, 40), logits, [3, 2, 1, 0], masks=masks)
    best = 7 if logits[3, 7] > logits[3, 39] else 39
    assert got.tokens.tolist() == [int(logits[0].argmax()), 33, 38, best]
    assert got.logprobs is not None
    for (ids, values, _), row in zip(entries(got.logprobs), logits):
        assert values == pytest.approx(torch.log_softmax(row, 0)[ids].tolist(), abs=ATOL["float32"])


def test_min_tokens_keeps_the_end_away() -> None:
    logits = torch.full((1, 17), -5.0)
    logits[0, 9], logits[0, 2] = 5.0, 4.0
    pipeline = pipeline_of([new_row(0, min_tokens=2, stop_ids=[9])])
    assert [int(sample(pipeline, logits, [0], [OUTPUTS_AT + step]).tokens[0]) for step in range(4)] == [2, 2, 9, 9]


def test_penalties_follow_what_is_drawn() -> None:
    logits = torch.full((1, 17), -50.0)
    logits[0, [1, 2, 3]] = torch.tensor([5.0, 4.5, 4.0])
    pipeline = pipeline_of([new_row(0, presence_penalty=2.0)])
    assert [int(sample(pipeline, logits, [0], [OUTPUTS_AT + step]).tokens[0]) for step in range(4)] == [1, 2, 3, 1]


@pytest.mark.parametrize("vocab_size", VOCABULARIES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_raw_logprobs_are_before_everything(vocab_size: int, temperature: float) -> None:
    logits = noise(3, vocab_size)
    last = vocab_size - 1
    rows = [
        new_row(0, temperature=temperature, logprobs=3, logit_bias={0: 50.0}, seed=1),
        new_row(1, temperature=temperature, logprobs=-1, top_k=1),
        new_row(2, temperature=temperature, logprob_token_ids=[last, 0]),
    ]
    got = sample(pipeline_of(rows, vocab_size), logits, [0, 1, 2])
    assert got.logprobs is not None
    assert got.logprob_rows.tolist() == [0, 1, 2]
    first, second, third = entries(got.logprobs)
    tops = [min(3, vocab_size), vocab_size, 0]
    for (ids, values, rank), token, row, top in zip((first, second, third), got.tokens.tolist(), logits, tops):
        assert ids[0] == token
        assert values == pytest.approx(torch.log_softmax(row.double(), 0)[ids].tolist(), abs=ATOL["float32"])
        assert ids[1 : 1 + top] == torch.sort(row, descending=True, stable=True).indices[:top].tolist()
        assert rank == 1 + int((row > row[token]).sum())
    assert first[0][0] == 0
    assert third[0][1:] == [last, 0]


def test_processed_and_unnormalised_modes() -> None:
    logits = noise(1, 17)
    parameters = {"temperature": 0.5, "top_k": 4, "logit_bias": {2: 20.0}, "logprobs": 17, "seed": 3}
    biased = logits[0].clone()
    biased[2] += 20.0
    scaled = biased / 0.5
    scaled[scaled < scaled.topk(4).values[-1]] = -math.inf
    wanted = {
        "raw_logits": logits[0],
        "raw_logprobs": torch.log_softmax(logits[0], 0),
        "processed_logits": scaled,
        "processed_logprobs": torch.log_softmax(scaled, 0),
    }
    for mode, want in wanted.items():
        got = sample(pipeline_of([new_row(0, **parameters)], logprobs_mode=mode), logits, [0])
        assert got.logprobs is not None
        ((ids, values, rank),) = entries(got.logprobs)
        assert values == pytest.approx(want[ids].tolist(), abs=ATOL["float32"])
        assert rank == 1 + int((want > want[ids[0]]).sum())
    greedy = sample(pipeline_of([new_row(0, logprobs=2, logit_bias={2: 20.0})], logprobs_mode="processed_logits"), logits, [0])
    assert greedy.logprobs is not None
    assert entries(greedy.logprobs)[0][1][0] == pytest.approx(float(biased[2]))
    with pytest.raises(ValueError, match="logprobs_mode"):
        pipeline_of([], logprobs_mode="cooked")


def test_more_rows_with_logprobs_than_are_copied_at_once() -> None:
    logits = noise(21, 17)
    rows = [new_row(row, **({"logprobs": 1} if row % 20 else {}), temperature=1.0, seed=row) for row in range(21)]
    got = sample(pipeline_of(rows), logits, list(range(21)))
    plain = sample(pipeline_of([new_row(row, temperature=1.0, seed=row) for row in range(21)]), logits, list(range(21)))
    assert got.tokens.tolist() == plain.tokens.tolist()
    assert got.logprob_rows.tolist() == list(range(1, 20))
    assert got.logprobs is not None
    assert [ids[0] for ids, _, _ in entries(got.logprobs)] == got.tokens[1:20].tolist()


def test_prompt_logprobs() -> None:
    logits = noise(3, 17)
    pipeline = pipeline_of([new_row(0, prompt_logprobs=2), new_row(1)])
    assert pipeline.wants_prompt_logprobs(0)
    assert not pipeline.wants_prompt_logprobs(1)
    columns = pipeline.prompt_logprobs(0, logits, np.array([4, 0, 16], np.int32))
    for (ids, values, rank), token, row in zip(entries(columns), (4, 0, 16), logits):
        assert ids[0] == token
        assert ids[1:] == row.topk(2).indices.tolist()
        assert values == pytest.approx(torch.log_softmax(row, 0)[ids].tolist(), abs=ATOL["float32"])
        assert rank == 1 + int((row > row[token]).sum())
    logits[1, 3] = math.nan
    with pytest.raises(ValueError, match="not finite"):
        pipeline.prompt_logprobs(0, logits, np.array([4, 0, 16], np.int32))


@pytest.mark.parametrize("mode", ["fast", "reference"])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_padding_of_the_vocabulary_is_as_good_as_not_there(temperature: float, mode: str) -> None:
    logits = noise(8, 17)
    padded = torch.cat([logits, torch.full((8, 4), 50.0)], 1)
    rows = [new_row(row, temperature=temperature, seed=row, logprobs=-1 if row % 2 else None, prompt_logprobs=2) for row in range(8)]
    with_padding, without = pipeline_of(rows, 21, num_tokens=17, mode=mode), pipeline_of(rows, 17, mode=mode)
    got, want = sample(with_padding, padded, list(range(8))), sample(without, logits, list(range(8)))
    assert got.tokens.tolist() == want.tokens.tolist()
    assert got.logprobs is not None
    assert want.logprobs is not None
    assert [ids for ids, _, _ in entries(got.logprobs)] == [ids for ids, _, _ in entries(want.logprobs)]
    tokens = np.arange(8, dtype=np.int32)
    got_prompt, want_prompt = with_padding.prompt_logprobs(0, padded.clone(), tokens), without.prompt_logprobs(0, logits.clone(), tokens)
    assert entries(got_prompt) == [(ids, pytest.approx(values, abs=ATOL["float32"]), rank) for ids, values, rank in entries(want_prompt)]


def test_rows_come_and_go() -> None:
    pipeline = pipeline_of([new_row(0, logprobs=1, presence_penalty=2.0, prompt_logprobs=0)])
    pipeline.remove_row(0)
    pipeline.remove_row(5)
    pipeline.add_row(new_row(0))
    assert sample(pipeline, noise(1, 17), [0]).logprobs is None
    with pytest.raises(ValueError, match="row 64"):
        pipeline.add_row(new_row(64))


def test_a_row_without_parameters_is_greedy() -> None:
    row = new_row(0)
    row.sampling = None
    logits = noise(1, 17)
    assert sample(pipeline_of([row]), logits, [0]).tokens.tolist() == [int(logits.argmax())]


def test_the_parameters_of_a_request_are_checked_before() -> None:
    for wrong in ({"temperature": math.nan}, {"top_p": 0.0}, {"top_k": -2}, {"min_p": 1.5}):
        with pytest.raises(OctavoError):
            SamplingParams(**wrong)  # type: ignore[arg-type]
    assert len(PROMPT) == OUTPUTS_AT
