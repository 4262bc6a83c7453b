"""SamplingParams: defaults and ranges as documented; every wrong value names its field."""

import math

import msgspec
import pytest

from octavo import SamplingParams
from octavo.errors import RequestError
from octavo.protocol.sampling_params import BeamSearchParams, RepetitionDetectionParams


def test_defaults() -> None:
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_p, params.top_k, params.min_p, params.max_tokens) == (1, 1.0, 1.0, 0, 0.0, 16)
    assert params.stop == []
    assert not params.is_greedy


def test_greedy_resets_what_cannot_matter() -> None:
    params = SamplingParams(temperature=0.0, top_p=0.3, top_k=7, min_p=0.2)
    assert params.is_greedy
    assert (params.top_p, params.top_k, params.min_p) == (1.0, 0, 0.0)


def test_tiny_temperature_is_raised() -> None:
    assert SamplingParams(temperature=0.001).temperature == 0.01
    assert SamplingParams(temperature=1e-6).is_greedy


def test_spellings() -> None:
    assert SamplingParams(top_k=-1).top_k == 0
    assert SamplingParams(seed=-1).seed is None
    assert SamplingParams(stop="a").stop == ["a"]
    assert SamplingParams(logit_bias={"5": 300.0}).logit_bias == {5: 100.0}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("repetition_penalty", 1e-320),
        ("repetition_penalty", 1e308),
        ("n", 1.5),
        ("n", 10**6),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("temperature", -0.1),
        ("temperature", 2.5),
        ("temperature", math.nan),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", 1.1),
        ("seed", 2**64),
        ("max_tokens", -1),
        ("top_k", 2**63),
        ("min_tokens", 2**63),
        ("max_tokens", 2**64),
        ("repetition_penalty", 10**400),
        ("stream_interval", 2**63),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("logprobs", -2),
        ("prompt_logprobs", -2),
        ("stop", [""]),
        ("stop_token_ids", [-1]),
        ("allowed_token_ids", []),
        ("bad_words", [""]),
        ("bad_words", ["x"] * 129),
        ("logprob_token_ids", list(range(129))),
        ("logit_bias", {"a": 1.0}),
        ("truncate_prompt_tokens", 0),
        ("stream_interval", 0),
    ],
)
def test_wrong_value_names_its_field(field: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert caught.value.parameter == field
    assert field in caught.value.fact


def test_combinations() -> None:
    with pytest.raises(RequestError, match="greedy"):
        SamplingParams(n=2, temperature=0)
    with pytest.raises(RequestError, match="detokenize"):
        SamplingParams(stop="a", detokenize=False)
    with pytest.raises(RequestError, match="min_count"):
        RepetitionDetectionParams(max_pattern_size=3, min_count=1)
    with pytest.raises(RequestError, match="beam_width"):
        BeamSearchParams(beam_width=0, max_tokens=1)


def test_vocabulary_and_logprob_limits() -> None:
    SamplingParams(logprobs=20, stop_token_ids=[9]).check_vocabulary(10, 20)
    SamplingParams(logprobs=-1).check_vocabulary(10, -1)
    for params in (
        SamplingParams(stop_token_ids=[10]),
        SamplingParams(logit_bias={10: 1.0}),
        SamplingParams(allowed_token_ids=[3, 10]),
        SamplingParams(logprobs=21),
        SamplingParams(logprobs=-1),
        SamplingParams(prompt_logprobs=21),
    ):
        with pytest.raises(RequestError):
            params.check_vocabulary(10, 5 if params.logprobs == -1 else 20)


def test_copy_is_independent() -> None:
    params = SamplingParams(stop=["a"], logit_bias={1: 2.0})
    copy = params.copy()
    assert copy == params
    assert isinstance(copy.stop, list)
    copy.stop.append("b")
    assert params.stop == ["a"]


INTEGERS = ("n", "top_k", "min_tokens", "max_tokens", "logprobs", "prompt_logprobs", "truncate_prompt_tokens", "stream_interval", "seed")


@pytest.mark.parametrize("value", [2**64, 10**40, -(2**63) - 1])
@pytest.mark.parametrize("name", INTEGERS)
def test_numbers_that_no_message_holds_are_refused(name: str, value: int) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    assert caught.value.parameter == name
    if name not in ("n", "min_tokens"):
        assert msgspec.msgpack.encode(SamplingParams(**{name: 2**63 - 1}))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_pattern_size", "min_pattern_size", "min_count"])
def test_sizes_of_patterns_fit_a_message(name: str) -> None:
    with pytest.raises(RequestError, match="64 bits"):
        RepetitionDetectionParams(**{name: 2**63})
