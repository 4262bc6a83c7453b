"""JSON schemas: what of a request's schema is a constraint here, and what is refused, by the keyword's name and place."""

import json
from dataclasses import dataclass
from typing import Any

from octavo.errors import RequestError

FIELD = "structured_outputs"
MAX_DEPTH = 64  # objects and arrays of the schema inside each other
MAX_SIZE = 1_048_576  # characters
MAX_BLANKS = 8  # in a row between two parts of a document
BLANKS = rf"[ \t\n\r]{{1,{MAX_BLANKS}}}"

# keywords that assert something and that no back end enforces
UNSUPPORTED = frozenset(
    (
        "not",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "if",
        "then",
        "else",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
    )
)
# where a schema holds schemas: as a value, as values of an object, as entries of a list
_ONE = ("items", "additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("anyOf", "allOf", "oneOf", "prefixItems")
_SIZES = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
# keywords that evaluate properties and items beside those that stand next to them
_IN_PLACE = frozenset(
    ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "not", "contains", "propertyNames")
)


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """How documents are written. whitespace: regular expression of what may stand between two parts, None for the default."""

    is_compact: bool = False
    closes_objects: bool = False  # no properties beside those that are named, unless a schema asks for them
    whitespace: str | None = None

    def guidance(self) -> dict[str, Any]:
        """As llguidance reads it."""
        if self.is_compact:
            return {"whitespace_flexible": False}
        return {"whitespace_flexible": True, "whitespace_pattern": self.whitespace or BLANKS}


def read_schema(schema: Any, options: JsonOptions, field: str) -> Any:
    """The schema as a back end gets it: what says nothing is gone. Raises RequestError for what is no schema or too large."""
    if isinstance(schema, str):
        if len(schema) > MAX_SIZE:
            raise _wrong(field, f"the schema has {len(schema)} characters, and {MAX_SIZE} is the most")
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise _wrong(field, f"the schema is not JSON: {error}") from None
    if not isinstance(schema, (dict, bool)):
        raise _wrong(field, f"a schema must be an object or a boolean, not {type(schema).__name__}")
    _check_depth(schema, field)
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _wrong(field, f"the schema is not JSON: {error}") from None
    if len(text) > MAX_SIZE:
        raise _wrong(field, f"the schema has {len(text)} characters, and {MAX_SIZE} is the most")
    return _simplified(schema, options, field, "#")


def json_rule(schema: Any, options: JsonOptions, field: str) -> str:
    """The schema as the body of a rule in a Lark grammar."""
    read = read_schema(schema, options, field)
    if isinstance(read, bool):
        read = {} if read else {"enum": []}
    return "%json " + json.dumps({"x-guidance": options.guidance(), **read}, ensure_ascii=False)


def find_keyword(schema: Any, names: frozenset[str] = UNSUPPORTED, path: str = "#") -> tuple[str, str] | None:
    """(path, keyword) of the first keyword of these in the schema or in one that it holds; None if there is none."""
    if not isinstance(schema, dict):
        return None
    for key in schema:
        if key in names:
            return f"{path}/{key}", key
    for place, part in _parts(schema):
        if (found := find_keyword(part, names, f"{path}/{place}")) is not None:
            return found
    return None


def _parts(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    """The schemas that a schema holds, by their places in it."""
    parts = [(key, schema[key]) for key in _ONE if isinstance(schema.get(key), dict)]
    for key in _BY_NAME:
        if isinstance(schema.get(key), dict):
            parts += [(f"{key}/{name}", part) for name, part in schema[key].items()]
    for key in _LISTED:
        if isinstance(schema.get(key), list):
            parts += [(f"{key}/{index}", part) for index, part in enumerate(schema[key])]
    if isinstance(schema.get("items"), list):
        parts += [(f"items/{index}", part) for index, part in enumerate(schema["items"])]
    return parts


def _simplified(schema: Any, options: JsonOptions, field: str, path: str) -> Any:
    """The schema without keywords that say nothing, and all that it holds likewise."""
    if not isinstance(schema, dict):
        return schema
    result = {key: value for key, value in schema.items() if not _says_nothing(key, value, schema) and key != "x-guidance"}
    result = _with_plain_rest(_with_named_properties(result))
    for key in _SIZES:
        if isinstance(result.get(key), float) and result[key].is_integer():
            result[key] = int(result[key])
    for key in _ONE:
        if isinstance(result.get(key), dict):
            result[key] = _simplified(result[key], options, field, f"{path}/{key}")
    for key in _BY_NAME:
        if isinstance(result.get(key), dict):
            result[key] = {name: _simplified(part, options, field, f"{path}/{key}/{name}") for name, part in result[key].items()}
    for key in _LISTED:
        if isinstance(result.get(key), list):
            result[key] = [_simplified(part, options, field, f"{path}/{key}/{index}") for index, part in enumerate(result[key])]
    if options.closes_objects and "properties" in result and "additionalProperties" not in result and "patternProperties" not in result:
        result["additionalProperties"] = False
    return result


def _with_plain_rest(schema: dict[str, Any]) -> dict[str, Any]:
    """Without unevaluatedProperties and unevaluatedItems, where nothing but the keywords beside them evaluates anything."""
    for key, plain in (("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items")):
        if key in schema and plain in schema:  # whatever there is has been evaluated
            schema = {name: value for name, value in schema.items() if name != key}
        elif key in schema and _IN_PLACE.isdisjoint(schema):
            schema = {plain if name == key else name: value for name, value in schema.items()}
    return schema


def _with_named_properties(schema: dict[str, Any]) -> dict[str, Any]:
    """Without propertyNames, where they are a pattern or a list and no properties are described otherwise."""
    names = schema.get("propertyNames")
    if not isinstance(names, dict) or "properties" in schema or "patternProperties" in schema or "unevaluatedProperties" in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("propertyNames", "additionalProperties")}
    every = schema.get("additionalProperties", True)
    asserted = {key: value for key, value in names.items() if (key, value) != ("type", "string")}
    match asserted:
        case {"pattern": str(pattern)} if len(asserted) == 1:
            return {**rest, "patternProperties": {pattern: every}, "additionalProperties": False}
        case {"enum": list(allowed)} if len(asserted) == 1:
            return {**rest, "properties": {name: every for name in allowed if isinstance(name, str)}, "additionalProperties": False}
        case {"const": str(name)} if len(asserted) == 1:
            return {**rest, "properties": {name: every}, "additionalProperties": False}
    return schema if asserted else {key: value for key, value in schema.items() if key != "propertyNames"}


def _says_nothing(key: str, value: Any, schema: dict[str, Any]) -> bool:
    match key:
        case "uniqueItems":
            return value is False
        case "then" | "else":
            return "if" not in schema
        case "if":
            return schema.keys().isdisjoint(("then", "else", "unevaluatedProperties", "unevaluatedItems"))
        case "minContains" | "maxContains":
            return "contains" not in schema
        case "propertyNames" | "unevaluatedProperties" | "unevaluatedItems":
            return value is True or bool(value == {})
        case "dependentRequired" | "dependentSchemas" | "dependencies":
            return bool(value == {})
    return False


def _check_depth(value: Any, field: str) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH + 1:
            raise _wrong(field, f"the schema is nested more than {MAX_DEPTH} deep")
        level = [
            part
            for each in level
            if isinstance(each, (dict, list))
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, (dict, list))
        ]


def _wrong(field: str, fact: str) -> RequestError:
    return RequestError(f"{FIELD}.{field}: {fact}", parameter=FIELD)
