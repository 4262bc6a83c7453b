"""Kind L: structured output, from a model that says noise. What is asked for is kept, or refused by name; never quietly left away."""

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import RequestError
from octavo.protocol.sampling_params import StructuredOutputsParams
from tests.grammar.random_model import write
from tests.reports.servers import SMALL, Server, serving

COMPLETIONS = "/v1/completions"
TWO_FIELDS = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 10}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("noise") / "model")


@pytest.fixture(scope="module")
def noise(folder: Path) -> Iterator[Server]:
    with serving(folder, *SMALL) as server:
        yield server


def texts(noise: Server, count: int = 1, **grammar: Any) -> list[tuple[str, str]]:
    """(text, finish_reason) of so many answers."""
    body = {"prompt": "noise", "max_tokens": 400, "n": count, "seed": 5, "temperature": 1.5, "structured_outputs": grammar}
    return [(choice["text"], choice["finish_reason"]) for choice in noise.ask(COMPLETIONS, **body)["choices"]]


def values(noise: Server, schema: Any, count: int = 1) -> list[Any]:
    """Documents of a schema, each of which ends and validates."""
    answers = texts(noise, count, json=schema if isinstance(schema, dict) else json.dumps(schema))
    found = []
    for text, reason in answers:
        assert reason == "stop", text
        found.append(json.loads(text))
        jsonschema.Draft202012Validator(schema).validate(found[-1])
    return found


def kept_or_refused(noise: Server, schema: dict[str, Any], keyword: str, count: int = 5) -> None:
    response = noise.post(COMPLETIONS, prompt="noise", max_tokens=400, n=count, seed=5, structured_outputs={"json": schema})
    if response.status_code == 400:
        error = response.json()["error"]
        assert keyword in error["message"]
        assert error["param"] == "structured_outputs"
        return
    for choice in response.json()["choices"]:
        if choice["finish_reason"] == "stop":
            jsonschema.Draft202012Validator(schema).validate(json.loads(choice["text"]))


def test_l1_all_of_with_two_branches_is_kept(noise: Server) -> None:
    definitions = {"named": {"type": "object", "properties": {"name": {"enum": ["x", "y"]}}, "required": ["name"]}}
    branches = [{"$ref": "#/$defs/named"}, {"properties": {"age": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["age"]}]
    schema = {"$defs": definitions, "allOf": branches, "unevaluatedProperties": True}
    for value in values(noise, schema, 5):
        assert value["name"] in ("x", "y")
        assert 0 <= value["age"] <= 9


def test_l2_the_empty_schema_gives_a_value_that_ends(noise: Server) -> None:
    bias = {str(ord(digit)): 100 for digit in "0123456789"}
    body = {"prompt": "noise", "max_tokens": 400, "structured_outputs": {"json": {}}, "logit_bias": bias}
    [choice] = noise.ask(COMPLETIONS, **body)["choices"]
    assert choice["finish_reason"] == "stop"
    assert abs(json.loads(choice["text"])) < 10**64


def test_l3_blanks_between_parts_are_few(noise: Server) -> None:
    for text, reason in texts(noise, 50, json=TWO_FIELDS):
        assert reason == "stop"
        jsonschema.validate(json.loads(text), TWO_FIELDS)
        assert not re.search(r"\s{9}", re.sub(r'"(\\.|[^"\\])*"', "s", text)), text


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("patternProperties", {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}),
        ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}, "maxProperties": 3}),
        ("propertyNames", {"type": "object", "propertyNames": {"maxLength": 2}}),
        ("multipleOf", {"type": "integer", "multipleOf": 7, "maximum": 1000, "minimum": 0}),
        ("uniqueItems", {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True}),
        ("not", {"type": "integer", "not": {"const": 3}}),
        ("if", {"type": "integer", "if": {"minimum": 3}, "then": {"maximum": 5}}),
        ("contains", {"type": "array", "contains": {"const": 1}}),
        ("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}),
        ("oneOf", {"oneOf": [{"minimum": 2, "type": "integer"}, {"type": "integer"}]}),
        ("minProperties", {"type": "object", "minProperties": 2, "maxProperties": 3, "additionalProperties": {"enum": [1]}}),
    ],
)
def test_l4_a_keyword_is_kept_or_refused(noise: Server, keyword: str, schema: dict[str, Any]) -> None:
    kept_or_refused(noise, schema, keyword)


def test_l5_a_refusal_says_where_and_why(noise: Server) -> None:
    schema = {"type": "object", "properties": {"list": {"items": {"uniqueItems": True}}}}
    error = noise.refusal(COMPLETIONS, prompt="noise", structured_outputs={"json": schema})
    assert "'uniqueItems' at #/properties/list/items/uniqueItems" in error["message"]


@pytest.mark.parametrize("length", [1999, 2000, 2001, 100_000])
def test_l8_long_strings_may_be_long(noise: Server, length: int) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": length}}, "required": ["a"]}
    began = time.monotonic()
    response = noise.post(COMPLETIONS, prompt="noise", max_tokens=3, structured_outputs={"json": schema})
    assert response.status_code == 200
    assert time.monotonic() - began < 5


def test_l9_an_engine_without_a_tokenizer_refuses_grammars(folder: Path) -> None:
    with LLM(str(folder), skip_tokenizer_init=True, kv_cache_memory_bytes=1 << 20, max_num_seqs=2, gpu_memory_utilization=0.01) as llm:
        asked = SamplingParams(structured_outputs=StructuredOutputsParams(json={}), max_tokens=2)
        with pytest.raises(RequestError, match="needs a tokenizer"):
            llm.generate({"prompt_token_ids": [1]}, asked)
        [output] = llm.generate({"prompt_token_ids": [1]}, SamplingParams(max_tokens=2, ignore_eos=True), use_tqdm=False)
        assert len(output.outputs[0].token_ids) == 2


@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": -5, "maximum": 5},
        {"exclusiveMinimum": 0, "exclusiveMaximum": 3},
        {"minimum": 0, "maximum": 500},
        {"minimum": 99, "maximum": 1001},
        {"minimum": -(10**18), "maximum": 10**18},
        {"minimum": 2**53},
        {"maximum": -17},
    ],
    ids=str,
)
def test_l10_integers_stay_in_their_bounds(noise: Server, bounds: dict[str, Any]) -> None:
    assert all(isinstance(value, int) for value in values(noise, {"type": "integer", **bounds}, 50))


def test_l11_what_is_recursive_deep_or_huge_ends_soon_while_others_go_on(noise: Server) -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    asked: list[dict[str, Any]] = [
        {"grammar": 'root ::= root "x" | "y"'},
        {"grammar": 'start: a\na: a a | "x"'},
        {"json": {"enum": [f"value {number}" for number in range(20_000)]}},
        {"json": json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})},
    ]
    done = threading.Event()

    def stream() -> None:
        events = noise.stream(COMPLETIONS, prompt="noise", max_tokens=300, ignore_eos=True)
        assert len(events) > 100
        done.set()

    other = threading.Thread(target=stream)
    other.start()
    began = time.monotonic()
    for grammar in asked:
        response = noise.post(COMPLETIONS, prompt="noise", max_tokens=20, structured_outputs=grammar)
        assert response.status_code in (200, 400), response.text
    body = b'{"prompt": "noise", "structured_outputs": {"json": ' + b'{"items":' * 5000 + b"{}" + b"}" * 5002
    assert noise.raw(COMPLETIONS, body).status_code == 400
    assert time.monotonic() - began < 30
    other.join()
    assert done.is_set()
    assert noise.lives()


@pytest.mark.parametrize("pattern", ["(a+)+$", "((a|a)*)*b", "a{1,50000}", "(x+x+)+y", "(.*a){50}"])
def test_l12_no_pattern_blocks(noise: Server, pattern: str) -> None:
    began = time.monotonic()
    response = noise.post(COMPLETIONS, prompt="noise", max_tokens=10, structured_outputs={"regex": pattern})
    assert response.status_code in (200, 400)
    assert noise.get("/health").status_code == 200
    assert time.monotonic() - began < 10
