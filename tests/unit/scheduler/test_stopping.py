"""Stop rules, in their order."""

from array import array
from typing import Any

import pytest

from octavo.protocol.messages import FinishReason
from octavo.protocol.sampling_params import RepetitionDetectionParams, SamplingParams
from octavo.scheduler.stopping import StopRules, Verdict, repeats
from tests.unit.scheduler.drive import request

STOP, LENGTH, REPETITION = FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION


def verdict(output: list[int], limit: int = 20, eos: tuple[int, ...] = (2,), **sampling: Any) -> Verdict | None:
    message = request("a", 3, eos_token_ids=list(eos), **sampling)
    assert isinstance(message.sampling, SamplingParams)
    tokens = array("i", [7, 7, 7, *output])
    return StopRules(message, message.sampling, 3, limit).verdict(tokens, len(tokens))


@pytest.mark.parametrize(
    ("output", "values", "expected"),
    [
        ([5], {}, None),
        ([5, 2], {}, (STOP, None)),
        ([5, 2], {"eos": ()}, None),
        ([5, 9], {"stop_token_ids": [9]}, (STOP, 9)),
        ([5, 2], {"stop_token_ids": [2]}, (STOP, None)),  # end-of-sequence comes first
        ([5, 2], {"min_tokens": 2}, (STOP, None)),
        ([5, 2], {"min_tokens": 3}, None),
        ([9], {"min_tokens": 3, "stop_token_ids": [9]}, None),
        ([5, 2], {"limit": 5}, (STOP, None)),  # a stop token beats the length
        ([5, 6], {"limit": 5}, (LENGTH, None)),
        ([5, 6], {"limit": 5, "min_tokens": 4}, (LENGTH, None)),  # the guard does not hold against the context's end
        ([5, 5, 5], {"repetition_detection": RepetitionDetectionParams(2, 1, 3)}, (REPETITION, None)),
        ([5, 5, 5], {"repetition_detection": RepetitionDetectionParams(2, 1, 3), "min_tokens": 4}, None),
        ([5, 5, 5], {"repetition_detection": RepetitionDetectionParams(2, 1, 3), "limit": 6}, (LENGTH, None)),
    ],
)
def test_the_order(output: list[int], values: dict[str, Any], expected: Verdict | None) -> None:
    assert verdict(output, **values) == expected


@pytest.mark.parametrize(
    ("output", "rule", "expected"),
    [
        ([1, 2, 1, 2], (2, 1, 2), True),
        ([1, 2, 1, 2], (2, 1, 3), False),
        ([9, 1, 2, 1, 2, 1, 2], (2, 2, 3), True),
        ([1, 2, 1, 2, 3], (2, 1, 2), False),
        ([4, 4], (3, 1, 2), True),
        ([4, 4], (3, 2, 2), False),
        ([1, 2, 3, 1, 2, 3], (3, 3, 2), True),
        ([7], (1, 1, 2), False),  # the prompt's tokens do not count
    ],
)
def test_patterns(output: list[int], rule: tuple[int, int, int], expected: bool) -> None:
    assert repeats(array("i", output), RepetitionDetectionParams(*rule)) is expected
