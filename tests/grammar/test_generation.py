"""Structured output through the whole engine, on a model that says nothing but noise: every answer obeys its grammar."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import RequestError
from octavo.protocol.outputs import CompletionOutput
from octavo.protocol.sampling_params import BeamSearchParams, StructuredOutputsParams
from tests.grammar.random_model import EOS, write

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": -5, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
        "when": {"type": "string", "format": "date"},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def options(**more: Any) -> dict[str, Any]:
    small = {"dtype": "float32", "max_num_seqs": 8, "max_num_batched_tokens": 64, "block_size": 16, "kv_cache_memory_bytes": 1 << 20}
    return {**small, "reasoning_parser": "qwen3", "gpu_memory_utilization": 0.01, **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("random") / "model")


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    """One engine for all tests; reasoning is told by the prompt's end: "</think>" has closed it."""
    with LLM(str(folder), **options()) as llm:
        yield llm


def ask(llm: LLM, prompt: str = "x</think>", count: int = 1, *, grammar: dict[str, Any] | None = None, **params: Any) -> Any:
    asked = None if grammar is None else StructuredOutputsParams(**grammar)
    given = [SamplingParams(seed=seed, structured_outputs=asked, **{"max_tokens": 150, **params}) for seed in range(count)]
    outputs = [each.outputs for each in llm.generate([prompt] * count, given, use_tqdm=False)]
    return [one for each in outputs for one in each]


def check_json(answer: CompletionOutput, schema: Any = SCHEMA) -> Any:
    assert answer.finish_reason == "stop", answer
    value = json.loads(answer.text)
    jsonschema.validate(value, schema)
    assert not re.search(r"[ \t\r\n]{9}", re.sub(r'"(\\.|[^"\\])*"', "s", answer.text))
    return value


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_every_answer_obeys_its_schema(llm: LLM, temperature: float) -> None:
    for answer in ask(llm, count=12, grammar={"json": SCHEMA}, temperature=temperature):
        check_json(answer)


def test_requests_of_all_kinds_run_beside_each_other(llm: LLM) -> None:
    kinds: list[tuple[dict[str, Any] | None, str]] = [
        ({"regex": "[a-z]{3}-[0-9]{2}"}, "[a-z]{3}-[0-9]{2}"),
        ({"choice": ["yes", "no", "maybe"]}, "yes|no|maybe"),
        ({"grammar": 'root ::= "<" [ab]{2,4} ">"'}, "<[ab]{2,4}>"),
        (None, ""),
        ({"regex": "x*", "disable_any_whitespace": True}, "x*"),
    ]
    params = [
        SamplingParams(seed=n, max_tokens=40, structured_outputs=None if kind is None else StructuredOutputsParams(**kind))
        for n in range(6)
        for kind, _ in kinds
    ]
    outputs = llm.generate(["x</think>"] * len(params), params, use_tqdm=False)
    for output, (kind, pattern) in zip(outputs, kinds * 6):
        answer = output.outputs[0]
        if kind is not None:
            assert re.fullmatch(pattern, answer.text) or (pattern == "x*" and answer.finish_reason == "length"), answer


def test_n_answers_each_have_a_state_of_their_own(llm: LLM) -> None:
    params = SamplingParams(n=5, seed=1, temperature=1.5, max_tokens=150, structured_outputs=StructuredOutputsParams(json=SCHEMA))
    answers = llm.generate("x" * 40 + "</think>", params, use_tqdm=False)[0].outputs
    assert len({json.dumps(check_json(answer)) for answer in answers}) > 1


def test_logprobs_are_told_for_every_token(llm: LLM) -> None:
    [answer] = ask(llm, grammar={"choice": ["{}"]}, logprobs=2, temperature=0.0)
    assert answer.text == "{}"
    assert answer.logprobs is not None
    assert len(answer.logprobs) == len(answer.token_ids)
    assert all(entry.logprob > -1e9 for position in answer.logprobs for entry in position.values())


def test_a_grammar_may_be_empty_or_end_with_the_end_of_sequence(llm: LLM) -> None:
    [answer] = ask(llm, grammar={"regex": "1?"}, temperature=2.0)
    assert answer.finish_reason == "stop"
    assert answer.text in ("", "1")


def test_ignore_eos_and_min_tokens_do_not_outlive_the_grammar(llm: LLM) -> None:
    for answer in ask(llm, count=3, grammar={"choice": ["yes", "no"]}, ignore_eos=True, min_tokens=20):
        assert answer.finish_reason == "stop"
        assert answer.text in ("yes", "no")
        assert EOS not in answer.token_ids


def test_a_constraint_that_leaves_nothing_fails_alone(llm: LLM) -> None:
    params = [
        SamplingParams(structured_outputs=StructuredOutputsParams(choice=["yes"]), allowed_token_ids=[7]),
        SamplingParams(structured_outputs=StructuredOutputsParams(choice=["yes"])),
    ]
    wrong, right = llm.generate(["x</think>"] * 2, params, use_tqdm=False)
    assert wrong.error is not None
    assert "allow" in wrong.error
    assert right.outputs[0].text == "yes"


def test_reasoning_is_free_and_the_grammar_begins_after_it(llm: LLM) -> None:
    for answer in ask(llm, "x<think>", 6, grammar={"json": SCHEMA}, thinking_token_budget=20, skip_special_tokens=False):
        thought, _, rest = answer.text.partition("</think>")
        check_json(CompletionOutput(0, rest, [], None, None, finish_reason=answer.finish_reason))
        assert EOS not in answer.token_ids[:-1], thought


def test_without_a_beginning_a_model_thinks_or_answers_at_once(llm: LLM) -> None:
    texts = [answer.text for answer in ask(llm, "x", 24, grammar={"choice": ["yes", "no"]}, thinking_token_budget=5, temperature=2.0,
                                           skip_special_tokens=False)]  # fmt: skip
    assert all(re.fullmatch(r"(<think>(.|\n)*?</think>)?(yes|no)", text) for text in texts)
    assert {text.startswith("<think>") for text in texts} == {True, False}


@pytest.mark.parametrize("budget", [0, 1, 7])
def test_a_budget_ends_reasoning_without_any_grammar(llm: LLM, budget: int) -> None:
    [answer] = ask(llm, "x<think>", thinking_token_budget=budget, ignore_eos=True, max_tokens=20, skip_special_tokens=False)
    ends = [place for place, token in enumerate(answer.token_ids) if token == 258]
    assert ends
    assert ends[0] <= budget


def test_beam_search_obeys_the_grammar(llm: LLM) -> None:
    params = BeamSearchParams(beam_width=3, max_tokens=20, structured_outputs=StructuredOutputsParams(choice=["yes", "no", "maybe"]))
    found = llm.beam_search("x</think>", params)[0].sequences
    texts = [sequence.text.removeprefix("x").removeprefix("</think>") for sequence in found]
    assert all(text in ("yes", "no", "maybe") for text in texts), texts


def test_what_is_wrong_is_refused_before_anything_is_computed(llm: LLM) -> None:
    with pytest.raises(RequestError, match="'not' at #/not"):
        ask(llm, grammar={"json": {"not": {}}})
    with pytest.raises(RequestError, match="exactly one"):
        ask(llm, grammar={})


def test_a_number_ends(folder: Path, llm: LLM) -> None:
    """The likeliest tokens are digits for ever, were they allowed."""
    bias = {ord(digit): 100.0 for digit in "0123456789"}
    for schema in ({}, {"type": "number"}, {"type": "integer", "minimum": 1}):
        [answer] = ask(llm, grammar={"json": schema}, logit_bias=bias, max_tokens=200)
        assert answer.finish_reason == "stop"
        assert len(answer.text) <= 80, answer.text


def test_answers_do_not_depend_on_scheduling(folder: Path, llm: LLM) -> None:
    """Overlapped with room, or step by step and preempted again and again: the same tokens."""
    expected = [answer.token_ids for answer in ask(llm, count=8, grammar={"json": SCHEMA}, temperature=1.3)]
    more = {"async_scheduling": False, "num_gpu_blocks_override": 20, "max_model_len": 256, "enable_prefix_caching": False}
    with LLM(str(folder), **options(**more)) as other:
        assert [answer.token_ids for answer in ask(other, count=8, grammar={"json": SCHEMA}, temperature=1.3)] == expected
        preemptions = next(metric for metric in other.get_metrics() if metric.name == "vllm:num_preemptions")
        assert preemptions.value > 0


def test_close_at_max_tokens_brings_every_document_to_its_end(folder: Path) -> None:
    parts = {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "string", "minLength": 3}}}
    strings = {"type": "object", "properties": parts, "required": ["a", "b"]}
    cases: list[dict[str, Any]] = [{"json": SCHEMA}, {"json": strings}, {"json_object": True}, {"json": {}}, {"regex": "a+(bc+d)+!"}]
    with LLM(str(folder), **options(structured_outputs_config={"close_at_max_tokens": True})) as llm:
        for grammar in cases:
            for room in (40, 60, 100):
                for answer in ask(llm, count=5, grammar=grammar, temperature=2.0, max_tokens=room):
                    assert answer.finish_reason == "stop", (grammar, answer)
                    assert len(answer.token_ids) <= room
                    if "regex" in grammar:
                        assert re.fullmatch(grammar["regex"], answer.text)
                    else:
                        check_json(answer, grammar.get("json", {}))
        for answer in ask(llm, "x<think>", 6, grammar={"json": strings}, max_tokens=60, skip_special_tokens=False):
            check_json(
                CompletionOutput(0, answer.text.partition("</think>")[2], [], None, None, finish_reason=answer.finish_reason), strings
            )
        with pytest.raises(RequestError, match="raise max_tokens"):
            ask(llm, grammar={"json": SCHEMA}, max_tokens=4)


def test_requests_can_be_aborted_while_their_grammar_is_compiled(llm: LLM) -> None:
    """The front end gives up at once; the engine goes on with others."""
    choices = [f"{number} or so" for number in range(5000)]
    given = SamplingParams(structured_outputs=StructuredOutputsParams(choice=choices), max_tokens=30)
    llm.enqueue(["x</think>"] * 3, given)
    llm._give_up()
    [answer] = ask(llm, grammar={"choice": ["yes"]})
    assert answer.text == "yes"
