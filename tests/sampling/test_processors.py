"""Each processor against a naive form of its rule, one token at a time."""

import math
from typing import Any

import pytest
import torch

from octavo.sampling.allowed_token_ids import AllowedTokenIds
from octavo.sampling.bad_words import BadWords
from octavo.sampling.logit_bias import LogitBias
from octavo.sampling.min_tokens import MinTokens
from octavo.sampling.penalties import Penalties
from tests.sampling.rows import PROMPT, new_row, noise

VOCABULARY = 17
OUTPUT = [5, 7, 7, 2]
START = len(PROMPT)
LOWEST = -math.inf


def applied(kind: Any, logits: torch.Tensor, position: int = START, drawn: list[int] | None = None, **parameters: Any) -> list[float]:
    processor = kind.of(new_row(**parameters), len(logits))
    for token in drawn or []:
        processor.note(token)
    changed = logits.clone()
    processor.apply(changed, position)
    return changed.tolist()


@pytest.mark.parametrize("kind", [LogitBias, AllowedTokenIds, MinTokens, Penalties, BadWords])
def test_rows_that_ask_for_nothing_have_none(kind: Any) -> None:
    assert kind.of(new_row(stop_ids=[1]), VOCABULARY) is None


def test_logit_bias() -> None:
    (logits,) = noise(1, VOCABULARY)
    want = logits.tolist()
    want[2] += 3.5
    want[16] -= 100
    assert applied(LogitBias, logits, logit_bias={2: 3.5, 16: -1000}) == pytest.approx(want)


def test_allowed_token_ids() -> None:
    (logits,) = noise(1, VOCABULARY)
    want = [value if token in (0, 16, 4) else LOWEST for token, value in enumerate(logits.tolist())]
    assert applied(AllowedTokenIds, logits, allowed_token_ids=[0, 16, 4, 4]) == want


@pytest.mark.parametrize(("position", "is_out"), [(START, True), (START + 2, True), (START + 3, False), (START + 9, False)])
def test_min_tokens_counts_output_alone(position: int, is_out: bool) -> None:
    (logits,) = noise(1, VOCABULARY)
    want = [LOWEST if is_out and token in (0, 16) else value for token, value in enumerate(logits.tolist())]
    assert applied(MinTokens, logits, position, min_tokens=3, stop_ids=[0, 16, 99]) == want


def penalised(logits: list[float], output: list[int], repetition: float, frequency: float, presence: float) -> list[float]:
    values = []
    for token, logit in enumerate(logits):
        value = logit
        if token in PROMPT or token in output:
            value = value / repetition if value > 0 else value * repetition
        value -= frequency * output.count(token)
        value -= presence * (token in output)
        values.append(value)
    return values


@pytest.mark.parametrize(("repetition", "frequency", "presence"), [(1.5, 0, 0), (0.8, 0, 0), (1, 0.7, 0), (1, 0, -1.2), (1.3, 0.5, 0.25)])
@pytest.mark.parametrize("resumed", [0, 2, 4])
def test_penalties(repetition: float, frequency: float, presence: float, resumed: int) -> None:
    (logits,) = noise(1, VOCABULARY)
    got = applied(
        Penalties,
        logits,
        output=OUTPUT[:resumed],
        drawn=OUTPUT[resumed:],
        repetition_penalty=repetition,
        frequency_penalty=frequency,
        presence_penalty=presence,
    )
    assert got == pytest.approx(penalised(logits.tolist(), OUTPUT, repetition, frequency, presence), abs=1e-5)


def test_presence_and_frequency_leave_the_prompt_alone() -> None:
    (logits,) = noise(1, VOCABULARY)
    assert applied(Penalties, logits, presence_penalty=2.0, frequency_penalty=2.0) == logits.tolist()


def test_penalties_over_many_tokens() -> None:
    (logits,) = noise(1, 1000)
    drawn = [(index * 7) % 1000 for index in range(900)]
    got = applied(Penalties, logits, drawn=drawn, frequency_penalty=0.5, repetition_penalty=1.1)
    assert got == pytest.approx(penalised(logits.tolist(), drawn, 1.1, 0.5, 0.0), abs=1e-4)


@pytest.mark.parametrize("resumed", [0, 3, 4])
def test_bad_words(resumed: int) -> None:
    (logits,) = noise(1, VOCABULARY)
    sequences = [[9], [2, 11], [7, 2, 12], [7, 7, 13], [5, 7, 7, 2, 14], [3, 5, 5, 15], [2, 2, 16]]
    out = {sequence[-1] for sequence in sequences if OUTPUT[len(OUTPUT) - len(sequence) + 1 :] == sequence[:-1] or len(sequence) == 1}
    assert out == {9, 11, 12, 14}
    got = applied(BadWords, logits, output=OUTPUT[:resumed], drawn=OUTPUT[resumed:], bad_words_token_ids=sequences)
    assert got == [LOWEST if token in out else value for token, value in enumerate(logits.tolist())]
