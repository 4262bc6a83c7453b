"""The JSON Schema Test Suite (draft 2020-12): what is accepted is obeyed, and no valid instance is shut out; what is refused is counted.

Its cases stand in json_schema_suite, without their comments; licence beside them.
"""

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest

from octavo.errors import RequestError
from octavo.grammar.closing import Finder
from octavo.grammar.json_schema import UNSUPPORTED
from tests.grammar import vocabularies
from tests.grammar.documents import generate, spellings

SUITE: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parent / "json_schema_suite" / "draft2020-12.json").read_text())
ASSERTED = {"format"}  # the suite takes it for a remark; here a format binds, as clients of structured output expect
DOCUMENTS = 4  # of each schema
LEAST_ACCEPTED = 223


def compiled(schema: Any) -> Any:
    return vocabularies.matcher(json=schema if isinstance(schema, dict) else json.dumps(schema))


def is_valid(schema: Any, value: Any) -> bool:
    try:
        return jsonschema.Draft202012Validator(schema).is_valid(value)
    except re.error:  # a pattern with Unicode classes, which Python's expressions lack
        return jsonschema_rs.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("name", SUITE)
def test_what_is_accepted_is_obeyed(name: str) -> None:
    finder, rng = Finder(vocabularies.small().tokens), random.Random(name)
    for group in SUITE[name]:
        try:
            matcher = compiled(group["schema"])
        except RequestError:
            continue
        for case in group["tests"]:
            is_allowed = any(vocabularies.accepts(matcher.copy(), text) for text in spellings(case["data"]))
            if name not in ASSERTED:
                assert is_allowed == case["valid"], (group["description"], group["schema"], case["data"])
            else:
                assert case["valid"] or not is_allowed
        for _ in range(DOCUMENTS):
            document = generate(vocabularies.small(), matcher.copy(), rng, rng.choice((3, 20, 60)), finder)
            if document is not None:  # an end within reach of what random tokens began with
                text = b"".join(vocabularies.small().tokens[token] for token in document)
                assert is_valid(group["schema"], json.loads(text)), (group["schema"], text)


def test_refusals_name_their_keyword() -> None:
    accepted, refused = 0, Counter[str]()
    for group in (group for groups in SUITE.values() for group in groups):
        try:
            compiled(group["schema"])
            accepted += 1
        except RequestError as error:
            named = re.search(r"keyword '([^']+)'", error.fact)
            refused[named[1] if named else "unsatisfiable" if "nsatisfiable" in error.fact else error.fact] += 1
    print(f"{accepted} of {accepted + refused.total()} schemas accepted; refused: {dict(refused.most_common())}")
    assert accepted >= LEAST_ACCEPTED
    known = UNSUPPORTED | {"$ref", "format", "oneOf", "unsatisfiable", "$dynamicAnchor", "$schema", "multipleOf", "patternProperties"}
    assert not (unexplained := set(refused) - known), unexplained
