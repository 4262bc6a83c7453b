"""Parameters and outputs of the Python API that no client of the server sees: flat log-probabilities, clones, what awaits its feature."""

from collections.abc import Callable
from typing import Any

import pytest

from octavo.errors import RequestError
from octavo.frontend.llm import LLM
from octavo.protocol.outputs import CompletionOutput, FlatLogprobs, Logprob, RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, SamplingParams
from octavo.text.tokenizer import Tokenizer
from tests.unit.frontend.scripted import ScriptedClient, ScriptedEngine, make_config


@pytest.fixture
def llm(tokenizer: Tokenizer) -> Callable[..., LLM]:
    def make(script: Any = "hello", **changes: Any) -> LLM:
        return LLM.from_config(make_config(tokenizer, **changes), ScriptedClient(ScriptedEngine(tokenizer, script)), tokenizer)  # type: ignore[arg-type]

    return make


# --- flat log-probabilities


def test_flat_log_probabilities_read_like_the_list_that_they_stand_for(llm: Callable[..., LLM]) -> None:
    def ask(flat: bool) -> RequestOutput:
        params = SamplingParams(logprobs=2, prompt_logprobs=1, flat_logprobs=flat)
        return llm("hello 😀").generate("you there", params, use_tqdm=False)[0]

    plain, flat = ask(False), ask(True)
    found, expected = flat.outputs[0].logprobs, plain.outputs[0].logprobs
    assert isinstance(found, FlatLogprobs)
    assert isinstance(flat.prompt_logprobs, FlatLogprobs)
    assert expected is not None
    assert (found, flat.prompt_logprobs) == (expected, plain.prompt_logprobs)
    assert (len(found), found[0], found[-1], list(found[1:3])) == (len(expected), expected[0], expected[-1], expected[1:3])
    assert flat.prompt_logprobs[0] is None
    assert flat.outputs[0].cumulative_logprob == plain.outputs[0].cumulative_logprob


def test_flat_log_probabilities_grow_like_a_list() -> None:
    one, two = {5: Logprob(-0.5, 1, "a"), 6: Logprob(-1.5, 2, "b")}, {7: Logprob(-0.1, 1, None)}
    flat = FlatLogprobs()
    flat.append(None)
    flat.extend([one])
    flat += [two]
    assert flat == [None, one, two]
    assert flat[::2] == [None, two]
    assert flat != [None]
    assert (flat.start_indices, flat.end_indices, flat.token_ids) == ([0, 0, 2], [0, 2, 3], [5, 6, 7])
    with pytest.raises(IndexError):
        flat[3]


# --- parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("thinking_token_budget", 5),
        ("watermarking", True),
        ("prompt_logprob_start", 3),
        ("prompt_logprob_token_ids", [[1]]),
        ("routed_experts_prompt_start", 3),
        ("trace_decode_token_ids", [1]),
        ("extra_args", {"mine": 1}),
    ],
)
def test_parameters_without_their_feature_are_refused_by_name(llm: Callable[..., LLM], name: str, value: Any) -> None:
    with pytest.raises(RequestError, match="mine" if name == "extra_args" else name) as refused:
        llm().generate("x", SamplingParams(**{name: value}), use_tqdm=False)
    assert refused.value.parameter == name


def test_beam_searches_refuse_them_too() -> None:
    with pytest.raises(RequestError, match="watermarking"):
        BeamSearchParams(beam_width=2, max_tokens=3, watermarking=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", {"a": 1}),
        ("stop", 5),
        ("stop", "x" * 70_000),
        ("stop_token_ids", "x"),
        ("allowed_token_ids", 5),
        ("bad_words", "word"),
        ("bad_words", [5]),
        ("bad_words", ["x" * 70_000]),
        ("logit_bias", [1]),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {5: float("nan")}),
        ("truncation_side", "up"),
        ("stream_interval", True),
        ("beam_width", 10**6),
        ("length_penalty", float("nan")),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    is_beam = name in ("beam_width", "length_penalty")
    make: Any = BeamSearchParams if is_beam else SamplingParams
    fixed = {"beam_width": 2, "max_tokens": 3} if is_beam else {}
    with pytest.raises(RequestError) as refused:
        make(**{**fixed, name: value})
    assert refused.value.parameter == name


def test_parameters_are_cloned_unless_they_need_not_be(llm: Callable[..., LLM]) -> None:
    kept, given = SamplingParams(), SamplingParams(skip_clone=True)
    kind = kept.output_kind
    llm().generate(["x", "y"], [kept, given], use_tqdm=False)
    assert kept.output_kind is kind
    assert given.output_kind is not kind


@pytest.mark.parametrize(("side", "text"), [(None, "ef"), ("left", "ef"), ("right", "ab")])
def test_a_prompt_is_cut_and_told_as_it_was_read(llm: Callable[..., LLM], side: str | None, text: str) -> None:
    output = llm().generate("abcdef", SamplingParams(truncate_prompt_tokens=2, truncation_side=side), use_tqdm=False)[0]
    assert output.prompt == text
    assert output.prompt_token_ids is not None
    assert len(output.prompt_token_ids) == 2


def test_outputs_have_the_fields_of_features_to_come() -> None:
    output = CompletionOutput(0, "", [])
    assert [getattr(output, name) for name in ("routed_experts", "sampling_mask", "spec_decode_metrics", "weight_versions")] == [None] * 4
    assert RequestOutput("r", None, None, None, [output], True).num_cache_creation_tokens is None
