"""Beam search against an exhaustive form on a random table of probabilities, and against transformers on a tiny model."""

import math
import random
from collections.abc import Iterator

import pytest

from octavo.frontend.beam_search import BeamSearch
from octavo.protocol.outputs import Logprob, LogprobsOnePosition
from octavo.protocol.sampling_params import BeamSearchParams


def table(vocabulary: int, seed: int) -> dict[int, list[float]]:
    """log P(next | last token)."""
    generator = random.Random(seed)
    rows = {}
    for last in range(vocabulary):
        weights = [math.exp(2 * generator.gauss(0, 1)) for _ in range(vocabulary)]
        rows[last] = [math.log(w / sum(weights)) for w in weights]
    return rows


def search(rows: dict[int, list[float]], params: BeamSearchParams, ends: list[int], vocabulary: int) -> list[tuple[list[int], float]]:
    beam = BeamSearch([0], params, ends, params.max_tokens)
    while not beam.is_done:
        answers: list[LogprobsOnePosition] = []
        for tokens in beam.running():
            best = sorted(range(vocabulary), key=lambda t: -rows[tokens[-1]][t])[: min(beam.num_candidates, vocabulary)]
            answers.append({t: Logprob(rows[tokens[-1]][t]) for t in best})
        beam.advance(answers)
    return [(s.tokens[1:], s.cum_logprob) for s in beam.result(None).sequences]


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_the_tree_finds_the_best_sequence(seed: int) -> None:
    vocabulary, length = 4, 4
    rows = table(vocabulary, seed)
    params = BeamSearchParams(beam_width=vocabulary**length, max_tokens=length, ignore_eos=True)
    found = search(rows, params, [], vocabulary)
    best, best_score = [], -math.inf
    for number in range(vocabulary**length):
        tokens = [number // vocabulary**k % vocabulary for k in range(length)]
        score = sum(rows[a][b] for a, b in zip([0, *tokens], tokens))
        if score > best_score:
            best, best_score = tokens, score
    assert found[0][0] == best
    assert found[0][1] == pytest.approx(best_score)
    assert len({tuple(tokens) for tokens, _ in found}) == len(found)


@pytest.mark.parametrize("penalty", [1200.0, 1e308, -1200.0, -1e308])
def test_a_penalty_beyond_all_floats_is_only_large(penalty: float) -> None:
    """Powers of it overflow, or vanish and cannot be divided by."""
    params = BeamSearchParams(beam_width=2, max_tokens=6, length_penalty=penalty)
    found = search(table(6, 1), params, [5], 6)
    assert len(found) == 2
    assert all(math.isfinite(score) for _, score in found)


def test_end_tokens_are_shown_only_when_asked_for() -> None:
    rows = table(6, 1)
    for last in rows:
        rows[last][5] = -0.01
    hidden = search(rows, BeamSearchParams(beam_width=2, max_tokens=8), [5], 6)
    shown = search(rows, BeamSearchParams(beam_width=2, max_tokens=8, include_stop_str_in_output=True), [5], 6)
    assert hidden[0][0] == []
    assert shown[0][0] == [5]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Products this small are slower on two threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.oracle
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0, -0.5])
@pytest.mark.parametrize(("width", "ends"), [(1, [7]), (3, [7]), (4, [7, 9]), (3, [20])])
def test_the_sequences_are_those_of_transformers(width: int, ends: list[int], length_penalty: float) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    vocabulary = 24
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=2,
        bos_token_id=1,
        eos_token_id=ends,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(8.0)  # far from uniform, so that no two candidates tie
    prompt = [1, 5, 11]
    with torch.no_grad():
        expected = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=10,
            do_sample=False,
            length_penalty=length_penalty,
            early_stopping=False,
        )
        params = BeamSearchParams(beam_width=width, max_tokens=10, length_penalty=length_penalty, include_stop_str_in_output=True)
        beam = BeamSearch(prompt, params, ends, 10)
        while not beam.is_done:
            logits = model(torch.tensor(beam.running())).logits[:, -1]
            best = torch.log_softmax(logits, -1).topk(min(beam.num_candidates, vocabulary))
            beam.advance([{int(t): Logprob(float(v)) for t, v in zip(ids, values)} for ids, values in zip(best.indices, best.values)])
    if width == 1:  # transformers decodes greedily then, which is what a beam of one is
        assert beam.result(None).sequences[0].tokens == expected[0].tolist()
        return
    found = [s.tokens for s in beam.result(None).sequences]
    padded = [tokens + [2] * (expected.shape[1] - len(tokens)) for tokens in found]
    assert padded == expected.tolist()
