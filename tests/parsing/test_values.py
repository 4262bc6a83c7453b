"""Bare values become JSON of the type that the schema allows, and Python's literals become JSON."""

import json
from collections.abc import Generator
from typing import Any

import pytest

from octavo.parsing import python_text
from octavo.parsing.alphabet import Alphabet
from octavo.parsing.events import Arguments, Piece, Tool, join
from octavo.parsing.machine import open_parser
from octavo.parsing.run import Run
from octavo.parsing.values import as_json

NULLABLE = {"anyOf": [{"type": "integer"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("5", {"type": "string"}, "5"),
        ("5", {"type": "integer"}, 5),
        ("007", {"type": "integer"}, 7),
        ("007", {"type": ["string", "integer"]}, "007"),
        ("+.5", {"type": "number"}, 0.5),
        ("1e20", {"type": "number"}, 1e20),
        ("123456789012345678901", {"type": "integer"}, 123456789012345678901),
        ("inf", {"type": "number"}, "inf"),
        ("True", {"type": "boolean"}, True),
        ("yes", {"type": "boolean"}, "yes"),
        ("None", NULLABLE, None),
        ("null", {"type": "string"}, "null"),
        ("null", {"type": "string", "nullable": True}, None),
        ("5", NULLABLE, 5),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("[1, 2", {"type": "array"}, "[1, 2"),
        ('{"a": NaN}', {"type": "object"}, '{"a": NaN}'),
        ('{"a": 1}', {"type": "string"}, '{"a": 1}'),
        ("a", {"enum": ["a", "b"]}, "a"),
        ("1", {"enum": [1, 2]}, 1),
        ("1", {"const": "1"}, "1"),
        ("3", {"$ref": "#/$defs/n"}, 3),
        ("3", {"allOf": [{"$ref": "#/$defs/n"}, {"minimum": 1}]}, 3),
        ("3", {"$ref": "#/$defs/loop"}, 3),
        ("3", None, 3),
        ("three", None, "three"),
        ("", {"type": "string"}, ""),
        ("", None, ""),
    ],
)
def test_a_bare_value(text: str, schema: Any, expected: Any) -> None:
    root = {"$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}}
    made = json.loads(as_json(text, schema, root))
    assert made == expected
    assert type(made) is type(expected)


def read_all(text: str) -> str | None:
    run = Run(Alphabet((), lambda spelling: None), (), True)
    run.text, run.has_ended = text + " ", True
    reading: Generator[None, None, str | None] = python_text.read_literal(run)
    try:
        next(reading)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it waits for more")


@pytest.mark.parametrize(
    "text",
    [
        *("1", "-1", "1_000", "0x1F", "0b10", "0o17", "1.", ".5", "-1e5", "1_0.5", "True", "None"),
        *("'it\\'s'", '"a\\n\\t\\x41\\u00e9\\U0001F600\\d"', "'''a'b''c'''", '"""x"y"""', "''", '""', "'\\\nx'"),
        *("[]", "[1, 'a', [None]]", "(1, 2)", "{'a': {'b': [1.5]}, \"c\": False}", "[1,]", "{'a': 1,}"),
    ],
)
def test_a_literal_of_python(text: str) -> None:
    made = read_all(text)
    assert made is not None
    as_python = eval_literal(text)
    assert json.loads(made) == (list(as_python) if isinstance(as_python, tuple) else as_python)


def eval_literal(text: str) -> Any:
    import ast
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.literal_eval(text)


@pytest.mark.parametrize("text", ["nan", "1__0", "0xg", "f(1)", "{1: }", "a", "--1", "{[1]: 2}", "[1 2]"])
def test_what_is_no_literal(text: str) -> None:
    assert read_all(text) is None


def test_arguments_without_keywords_take_the_schemas_names() -> None:
    tools = [Tool("f", {"properties": {"a": {}, "b": {}}})]
    parser = open_parser(tool_format="llama4_pythonic", tools=tools)
    assert join([*parser.feed([Piece("[f('x', b=2)]")]), *parser.finish()])[1] == Arguments(0, '{"a": "x", "b": 2}')
