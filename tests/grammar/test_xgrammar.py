"""The back end xgrammar: what it accepts it keeps, as the other one does, and what it would not keep is refused by name."""

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from octavo import LLM, SamplingParams, plugins
from octavo.config.config import GrammarConfig
from octavo.errors import RequestError
from octavo.grammar.backends import guidance
from octavo.grammar.closing import Finder
from octavo.grammar.grammar import grammar_of
from octavo.grammar.vocabulary import SpecialTexts
from octavo.protocol.sampling_params import StructuredOutputsParams
from tests.grammar import test_grammar, vocabularies
from tests.grammar.documents import generate, spellings
from tests.grammar.random_model import write
from tests.grammar.test_json_schema_suite import SUITE, is_valid
from tests.grammar.vocabularies import accepts

pytest.importorskip("xgrammar")
BACKEND = plugins.load("grammar.backends", "xgrammar")
LEAST_ACCEPTED = 40  # of the suite's schemas, most of which try what it does not know
PERSON = test_grammar.PERSON


@cache
def backend() -> Any:
    return BACKEND.Backend(vocabularies.small())


def matcher(config: GrammarConfig | None = None, **params: Any) -> Any:
    grammar = grammar_of(StructuredOutputsParams(**params), config or GrammarConfig(), SpecialTexts(vocabularies.small().specials))
    BACKEND.check(grammar)
    return backend().compile(grammar)


def cases_of(test: Any) -> list[Any]:
    return next(list(mark.args[1]) for mark in test.pytestmark if mark.name == "parametrize")


KINDS = [case for case in cases_of(test_grammar.test_a_kind_allows_what_it_says) if "whitespace_pattern" not in case[0]]


@pytest.mark.parametrize(("params", "right", "wrong"), KINDS)
def test_a_kind_allows_what_it_says(params: dict[str, Any], right: list[Any], wrong: list[Any]) -> None:
    begun = matcher(**params)
    for text in right:
        assert accepts(begun.copy(), text), text
    for text in wrong:
        assert not accepts(begun.copy(), text), text


@pytest.mark.parametrize(("form", "right", "wrong"), cases_of(test_grammar.test_a_structural_tag_allows_what_it_says))
def test_structural_tags_are_kept_by_the_other_back_end(form: Any, right: list[Any], wrong: list[Any]) -> None:
    begun = matcher(**test_grammar.tag(form))
    assert isinstance(begun, guidance.GuidanceMatcher)
    assert all(accepts(begun.copy(), text) for text in right)
    assert not any(accepts(begun.copy(), text) for text in wrong)


@pytest.mark.parametrize(("params", "told"), cases_of(test_grammar.test_what_is_wrong_is_refused_by_name))
def test_what_is_wrong_is_refused_by_name(params: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError) as raised:
        matcher(**params)
    assert told in str(raised.value) or "whitespace_pattern" in params
    assert raised.value.parameter == "structured_outputs"


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"json": {"type": "number", "multipleOf": 3}}, "'multipleOf' at #"),
        ({"json": {"type": "object", "properties": {"a": {"minLength": 2}}}}, "'minLength' at #/properties/a"),
        ({"json": {"type": "array", "items": {"oneOf": [{"type": "integer"}, {"type": "string"}]}}}, "'oneOf' at #/items"),
        ({"json": {"type": "string", "minLength": 2, "pattern": "^a+$"}}, "at # of type 'string'"),
        ({"json": {"type": "object", "required": ["a"]}}, "'required' at #"),
        ({"json": PERSON, "whitespace_pattern": " "}, "whitespace_pattern"),
        ({"regex": r"(?i)ab"}, "(?i)"),
        ({"regex": r"\p{L}"}, r"\\p"),
        ({"regex": r"\W"}, r"\\W"),
        ({"regex": r"[a-z&&[^x]]"}, "regular expression"),
        ({"regex": r"a\Z"}, "regex"),
    ],
)
def test_what_it_would_pass_over_is_refused(params: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=re.escape(told)):
        matcher(**params)


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (".+", ["a.é"], ["\n"]),
        ("^ab$|^c$", ["ab", "c"], ["abc"]),
        (r"[.\]a]{1,2}\.", ["a].", ".."], ["b.", "aa"]),
        ("(a|b)*?c", ["abc"], ["d"]),
    ],
)
def test_signs_mean_what_they_mean_elsewhere(pattern: str, right: list[str], wrong: list[str]) -> None:
    for text in right:
        assert accepts(matcher(regex=pattern), text)
    for text in wrong:
        assert not accepts(matcher(regex=pattern), text)


def test_special_tokens_are_no_text() -> None:
    words = np.zeros(vocabularies.small().words, np.int32)
    matcher(regex=".*").fill(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    specials = vocabularies.small().specials
    assert bits[ord("<")]
    assert {text for text, token in specials.items() if bits[token]} == {"<|end|>"}  # which ends the text
    assert not bits[len(vocabularies.small().tokens) :].any()


def test_a_matcher_goes_back_and_splits() -> None:
    at = matcher(regex="abc|abd")
    assert at.accept(ord("a"))
    assert at.forced() == [ord("b")]
    other = at.copy()
    assert other.accept(ord("b"))
    assert other.accept(ord("c"))
    assert other.may_end
    assert other.is_complete
    at.roll_back(1)
    assert not at.accept(ord("b"))
    assert at.accept(ord("a"))


def test_blanks_are_bounded() -> None:
    assert accepts(matcher(json=PERSON), '{"name":' + " " * 8 + '"A","age":3}')
    assert not accepts(matcher(json=PERSON), '{"name":' + " " * 9 + '"A","age":3}')


def test_what_is_accepted_of_the_schema_suite_is_obeyed() -> None:
    vocabulary, rng, accepted = vocabularies.small(), random.Random(0), 0
    finder = Finder(vocabulary.tokens)
    for name, groups in SUITE.items():
        for group in groups:
            try:
                begun = matcher(json=group["schema"] if isinstance(group["schema"], dict) else json.dumps(group["schema"]))
            except RequestError:
                continue
            accepted += 1
            for case in group["tests"]:
                is_allowed = any(accepts(begun.copy(), text) for text in spellings(case["data"]))
                assert is_allowed == case["valid"], (name, group["description"], group["schema"], case["data"])
            for _ in range(2):
                document = generate(vocabulary, begun.copy(), rng, rng.choice((3, 20)), finder)
                if document is not None:
                    text = b"".join(vocabulary.tokens[token] for token in document)
                    assert is_valid(group["schema"], json.loads(text)), (group["schema"], text)
    assert accepted >= LEAST_ACCEPTED


def test_answers_of_an_engine_obey(tmp_path: Path) -> None:
    """Several grammars at once, those of both back ends among them."""
    folder = write(tmp_path / "model")
    small: dict[str, Any] = {
        "dtype": "float32",
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "kv_cache_memory_bytes": 1 << 20,
        "gpu_memory_utilization": 0.01,
    }
    number = {"type": "json_schema", "json_schema": {"type": "integer"}}
    asked: list[dict[str, Any]] = [
        {"json": PERSON},
        {"regex": "[a-c]{3,9}"},
        {"choice": ["yes", "no"]},
        {"grammar": 'root ::= "a" root "b" | "x"'},
        test_grammar.tag({"type": "tag", "begin": "<a>", "content": number, "end": "</a>"}),
    ]
    with LLM(str(folder), structured_outputs_config={"backend": "xgrammar"}, **small) as llm:
        params = [SamplingParams(seed=1, max_tokens=200, structured_outputs=StructuredOutputsParams(**each)) for each in asked]
        texts = [output.outputs[0].text for output in llm.generate(["x"] * len(params), params, use_tqdm=False)]
        with pytest.raises(RequestError, match="'multipleOf'"):
            llm.generate("x", SamplingParams(structured_outputs=StructuredOutputsParams(json={"type": "number", "multipleOf": 3})))
    jsonschema.validate(json.loads(texts[0]), PERSON)
    assert re.fullmatch("[a-c]{3,9}", texts[1])
    assert texts[2] in ("yes", "no")
    assert re.fullmatch("a*xb*", texts[3])
    assert texts[3].count("a") == texts[3].count("b")
    assert re.fullmatch(r"<a>-?\d+</a>", texts[4])
