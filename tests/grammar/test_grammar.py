"""Grammars: each kind allows what it should and nothing else, and what is wrong is refused by name."""

import json
import re
import time
from typing import Any

import numpy as np
import pytest

from octavo.config.config import GrammarConfig
from octavo.errors import RequestError
from tests.grammar import vocabularies
from tests.grammar.vocabularies import accepts, matcher

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("params", "right", "wrong"),
    [
        (
            {"json": PERSON},
            ['{"name":"A","age":3}', '{ "name": "é",\n  "age": 150 }'],
            ['{"name":"A"}', '{"name":"A","age":151}', "{}", " {}"],
        ),
        ({"json": json.dumps(PERSON)}, ['{"name":"A","age":3}'], ['{"age":3,"name":"A"}']),
        ({"json": PERSON, "disable_any_whitespace": True}, ['{"name":"A","age":3}'], ['{"name": "A","age":3}']),
        ({"json": PERSON, "whitespace_pattern": " ?"}, ['{"name": "A", "age":3}'], ['{"name":  "A","age":3}', '{"name":\n"A","age":3}']),
        ({"json": {"properties": {"a": {}}, "type": "object"}}, ['{"a":1,"b":2}'], ['{"a"}']),
        ({"json": {"properties": {"a": {}}, "type": "object"}, "disable_additional_properties": True}, ['{"a":1}'], ['{"a":1,"b":2}']),
        ({"json_object": True}, ['{"x": [1, {"y": null}]}'], ["[1]", '"x"', "3"]),
        ({"regex": r"[a-c]{2}/\d"}, ["ab/4"], ["ab4", "abc/4", "ab/"]),
        ({"regex": r"^a|b$"}, ["a", "b"], ["ab"]),
        ({"choice": ["yes", "no", 'quo"te\n']}, ["yes", "no", 'quo"te\n'], ["ye", "yesno", "maybe"]),
        ({"grammar": 'start: "a" b+\nb: "b" | "c"'}, ["abcb"], ["a", "ad"]),
        ({"grammar": 'root ::= "a" b+\nb ::= [b-c] | "(" root ")"'}, ["abcb", "a(ab)"], ["a", "a(a)"]),
        ({"grammar": 'root ::= root "x" | "y"'}, ["yxx"], ["x"]),
        ({"grammar": "start: <think> /[0-9]/ </think>"}, [[257, "7", 258]], ["<think>7</think>"]),
    ],
)
def test_a_kind_allows_what_it_says(params: dict[str, Any], right: list[Any], wrong: list[Any]) -> None:
    begun = matcher(**params)
    for text in right:
        assert accepts(begun.copy(), text), text
    for text in wrong:
        assert not accepts(begun.copy(), text), text


def tag(form: Any) -> dict[str, Any]:
    return {"structural_tag": json.dumps({"type": "structural_tag", "format": form})}


TEXT, INTEGER = {"type": "any_text"}, {"type": "json_schema", "json_schema": {"type": "integer"}}


@pytest.mark.parametrize(
    ("form", "right", "wrong"),
    [
        ({"type": "const_string", "value": "a<|call|>b"}, [["a", 259, "b"]], ["a<|call|>b", "ab"]),
        ({"type": "sequence", "elements": [INTEGER, {"type": "regex", "pattern": "[xy]/"}]}, ["12x/", "0y/"], ["x/", "12"]),
        ({"type": "tag", "begin": "<a>", "content": TEXT, "end": "</a>"}, ["<a>1 < 2</a>", "<a></a>"], ["<a>x", "<a>x</a></a>"]),
        ({"type": "tag", "begin": "<a>", "content": TEXT, "end": "<|tail|>"}, [["<a>t", 260]], ["<a>t<|tail|>", ["<a>", 259, 260]]),
        ({"type": "tag", "begin": "(", "content": INTEGER, "end": [")", "]"]}, ["(1)", "(23]"], ["(1", "(x)"]),
        (
            {
                "type": "triggered_tags",
                "triggers": ["<f="],
                "tags": [{"begin": "<f=a>", "content": INTEGER, "end": "</f>"}, {"begin": "<f=b>", "content": TEXT, "end": "</f>"}],
            },
            ["free text", "say <f=a>12</f> and <f=b>so</f> on", "<f"],
            ["<f=c>", "<f=a>x</f>", "<f="],
        ),
        (
            {"type": "triggered_tags", "triggers": ["<f="], "tags": [{"begin": "<f=a>", "content": INTEGER, "end": "</f>"}],
             "at_least_one": True, "stop_after_first": True},
            ["so <f=a>1</f>"],
            ["text", "<f=a>1</f> more"],
        ),
        (
            {"type": "tags_with_separator", "separator": ",", "tags": [{"begin": "[", "content": INTEGER, "end": "]"}]},
            ["", "[1]", "[1],[2]"],
            ["[1][2]", ","],
        ),
        (
            {"type": "qwen_xml_parameter", "json_schema": PERSON},
            ["<parameter=name>\nA\n</parameter>\n<parameter=age>\n3\n</parameter>\n"],
            [""],
        ),
        ({"type": "or", "elements": [INTEGER, {"type": "grammar", "grammar": 'start: "g"+'}]}, ["7", "gg"], ["7g"]),
        ({"type": "repeat", "min": 1, "max": 2, "content": {"type": "const_string", "value": "ab"}}, ["ab", "abab"], ["", "ababab"]),
    ],
)  # fmt: skip
def test_a_structural_tag_allows_what_it_says(form: Any, right: list[Any], wrong: list[Any]) -> None:
    begun = matcher(**tag(form))
    for text in right:
        assert accepts(begun.copy(), text), text
    for text in wrong:
        assert not accepts(begun.copy(), text), text


def test_the_older_structural_tag_is_read() -> None:
    asked = {"type": "structural_tag", "structures": [{"begin": "<f=a>", "schema": PERSON, "end": "</f>"}], "triggers": ["<f="]}
    assert accepts(matcher(structural_tag=json.dumps(asked)), 'call <f=a>{"name":"x","age":1}</f>')
    assert not accepts(matcher(structural_tag=json.dumps(asked)), "call <f=a>{}</f>")


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({}, "exactly one of"),
        ({"regex": "a", "choice": ["a"]}, "not regex and choice"),
        ({"json": "{"}, "not JSON"),
        ({"json": [1]}, "object or a boolean"),
        ({"json": {"type": "object", "properties": {"a": {"anyOf": [{"not": {}}, {}]}}}}, "'not' at #/properties/a/anyOf/0/not"),
        ({"json": {"items": {"pattern": "(("}}}, "'pattern'"),
        ({"json": {"format": "zip code"}}, "'format'"),
        ({"json": {"$ref": "https://example.com/schema"}}, "'$ref'"),
        ({"json": {"type": "integer", "minimum": 3, "maximum": 2}}, "greater than maximum"),
        ({"json_object": False}, "must be true"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": 7}, "must be a string"),
        ({"choice": []}, "not empty"),
        ({"choice": ["a", 3]}, "list of strings"),
        ({"grammar": "neither"}, "no rule"),
        ({"grammar": "root ::= missing"}, "missing"),
        ({"grammar": "start: missing"}, "missing"),
        ({"structural_tag": "{}"}, "structural_tag"),
        (tag({"type": "unheard_of"}), "unknown format"),
        (tag({"type": "json_schema", "json_schema": {"uniqueItems": True}}), "uniqueItems"),
        ({"json": PERSON, "whitespace_pattern": "(("}, "unclosed group"),
    ],
)
def test_what_is_wrong_is_refused_by_name(params: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=re.escape(told)) as raised:
        matcher(**params)
    assert raised.value.parameter == "structured_outputs"
    assert len(str(raised.value)) < 900


def test_a_request_cannot_make_the_compiler_lenient() -> None:
    with pytest.raises(RequestError, match="uniqueItems"):
        matcher(json={"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}})


def test_keywords_that_say_nothing_do_no_harm() -> None:
    said = {"uniqueItems": False, "if": {"type": "string"}, "then": {}, "minContains": 3, "propertyNames": {}, "dependentRequired": {}}
    with pytest.raises(RequestError, match="'if'"):
        matcher(json={**said, "type": "array"})
    del said["if"]
    assert accepts(matcher(json={**said, "type": "array"}), "[1, 1]")


def test_the_configuration_is_the_default_of_every_request() -> None:
    strict = GrammarConfig(disable_any_whitespace=True, disable_additional_properties=True)
    assert not accepts(matcher(strict, json=PERSON), '{"name": "A", "age": 3}')
    assert not accepts(matcher(strict, json={"properties": {"a": {}}, "type": "object"}), '{"a":1,"b":2}')


def test_work_is_bounded() -> None:
    """What a grammar may cost is bounded by counts, so these end soon on any machine; none may be taken for something else."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    patterns = ["(a+)+$", "((a|a)*)*b", "a{1,50000}", "(" * 60_000, "(a{1,1000}){1,1000}", "(.*a){200}"]
    asked: list[dict[str, Any]] = [{"regex": pattern} for pattern in patterns]
    asked += [{"json": deep}, {"json": {"enum": [f"value {i}" for i in range(20_000)]}}, {"choice": [str(i) for i in range(20_001)]}]
    asked += [{"grammar": "root ::= " + "(" * 60_000}, {"grammar": 'start: a\na: a a | "x"'}]
    began = time.monotonic()
    for params in asked:
        try:
            words = np.zeros(vocabularies.small().words, np.int32)
            matcher(**params).fill(words)
        except RequestError:
            pass
    assert time.monotonic() - began < 20
