"""Values that a format writes as bare text, made JSON by what the tool's schema allows."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from octavo.parsing import python_text
from octavo.parsing.json_text import NUMBER, quoted

_NUMBER_LIKE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": "true", "false": "false"}
_NULLS = ("null", "none")
_ALL = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_DEPTH = 16  # of references and alternatives followed


def property_schema(parameters: Mapping[str, Any], key: str) -> Any:
    """The schema of one argument; None where the tool's schema does not say."""
    for _ in range(_DEPTH):
        if not isinstance(parameters, Mapping) or "$ref" not in parameters:
            break
        parameters = _resolve(parameters["$ref"], parameters)
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    found = properties.get(key) if isinstance(properties, Mapping) else None
    if found is None and isinstance(parameters, Mapping) and isinstance(parameters.get("additionalProperties"), Mapping):
        found = parameters["additionalProperties"]
    return found


def allowed_types(schema: Any, root: Any = None, depth: int = 0) -> frozenset[str]:
    """The JSON types that a schema allows; empty where it does not say."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return frozenset()
    if "$ref" in schema:
        return allowed_types(_resolve(schema["$ref"], root), root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind}) | (frozenset({"null"}) if schema.get("nullable") is True else frozenset())
    if isinstance(kind, list):
        return frozenset(name for name in kind if isinstance(name, str))
    if isinstance(schema.get("enum"), list):
        return frozenset(_type_of(value) for value in schema["enum"])
    if "const" in schema:
        return frozenset({_type_of(schema["const"])})
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            branches = [allowed_types(branch, root, depth + 1) for branch in schema[word]]
            return frozenset().union(*branches) if all(branches) else frozenset()
    if isinstance(schema.get("allOf"), list):
        said = [found for branch in schema["allOf"] if (found := allowed_types(branch, root, depth + 1))]
        return frozenset.intersection(*said) if said else frozenset()
    return frozenset({"object"}) if "properties" in schema else frozenset({"array"}) if "items" in schema else frozenset()


def as_json(text: str, schema: Any, root: Any = None) -> str:
    """A bare value as JSON text of a type that its schema allows; a string where none fits.

    Where the schema does not say, what reads as JSON is taken as that.
    """
    types = allowed_types(schema, root) or _ALL
    if types == {"string"}:
        return quoted(text)
    bare = text.strip()
    lowered = bare.lower()
    if "null" in types and lowered in _NULLS:
        return "null"
    if "boolean" in types and lowered in _BOOLEANS:
        return _BOOLEANS[lowered]
    if types & {"integer", "number"} and (number := _number(bare, may_be_loose="string" not in types)):
        return number
    if types & {"array", "object"} and bare[:1] in ("{", "["):
        if _is_json(bare):
            return bare
        if "string" not in types and (value := python_text.whole_value(bare)) is not None:
            return value  # models that were shown Python's writing of lists and dicts write it
    if "string" in types and types == _ALL and bare[:1] == '"' and _is_json(bare):
        return bare
    return quoted(text)


def _number(text: str, may_be_loose: bool) -> str | None:
    """A number as JSON writes it. Loose: spellings that JSON does not have (`007`, `+5`, `.5`)."""
    if NUMBER.fullmatch(text):
        return text
    if not (may_be_loose and _NUMBER_LIKE.fullmatch(text)):
        return None
    if text.lstrip("+-").isdigit():
        return str(int(text))
    value = float(text)
    return json.dumps(value) if math.isfinite(value) else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _resolve(reference: Any, root: Any) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    for step in reference[1:].split("/")[1:]:
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, Mapping) else None
    return root


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "number" if isinstance(value, int | float) else "object" if isinstance(value, Mapping) else "array"
