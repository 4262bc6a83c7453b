"""JSON schemas that xgrammar keeps: it passes over what it does not know, so what is not listed here is refused by name."""

from collections.abc import Callable
from typing import Any

from octavo.errors import RequestError
from octavo.grammar.xgrammar_regex import to_xgrammar

FIELD = "structured_outputs"
_NOTES = frozenset(
    (
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$id",
        "$schema",
        "$defs",
        "definitions",
    )
)
# of each type the keywords that are kept, and kept together
_KEPT: dict[str, tuple[frozenset[str], ...]] = {
    "null": (frozenset(),),
    "boolean": (frozenset(),),
    "integer": (frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),),
    "number": (frozenset(),),
    "string": (frozenset(("minLength", "maxLength")), frozenset(("pattern",))),
    "array": (frozenset(("items", "minItems", "maxItems")),),
    "object": (frozenset(("properties", "required", "additionalProperties")),),
}
_ALONE = ("$ref", "enum", "const", "anyOf")


def check(schema: Any, field: str) -> None:
    """Raise RequestError, naming keyword and place, for a schema of which xgrammar would not keep all."""
    _Checker(schema, field).check(schema, "#")


class _Checker:
    def __init__(self, root: Any, field: str) -> None:
        self._root = root
        self._field = field

    def check(self, schema: Any, path: str) -> None:
        if schema is True or schema == {}:
            return
        if not isinstance(schema, dict):
            raise self._refusal("false", path)
        said = {key: value for key, value in schema.items() if key not in _NOTES}
        for name in ("$defs", "definitions"):
            for key, part in (schema.get(name) or {}).items():
                self.check(part, f"{path}/{name}/{key}")
        alone = next((key for key in _ALONE if key in said), None)
        if alone is not None:
            self._check_alone(alone, said, path)
        elif said:
            self._check_type(said, path)

    def _check_alone(self, key: str, said: dict[str, Any], path: str) -> None:
        beside = next((other for other in said if other != key), None)
        if beside is not None:
            raise self._refusal(beside, path, f" beside {key!r}")
        if key == "anyOf":
            for index, part in enumerate(said[key]):
                self.check(part, f"{path}/anyOf/{index}")
        elif key in ("enum", "const") and any(isinstance(value, dict | list) for value in (said[key] if key == "enum" else [said[key]])):
            raise self._refusal(key, path, " with an object or a list")
        elif key == "$ref" and said[key] != "#" and not said[key].startswith(("#/$defs/", "#/definitions/")):
            raise self._refusal(key, path, f" ({said[key]})")

    def _check_type(self, said: dict[str, Any], path: str) -> None:
        kind = said.get("type")
        keywords = said.keys() - {"type"}
        if isinstance(kind, list) and not keywords:
            return
        if not isinstance(kind, str):
            raise self._refusal(min(keywords, default="type"), path, " without one `type` beside it")
        kept = _KEPT.get(kind, (frozenset(),))
        if not any(keywords <= each for each in kept):
            unknown = sorted(keywords - kept[0]) or sorted(keywords)
            raise self._refusal(unknown[0], path, f" of type {kind!r}")
        if kind in CHECKS:
            CHECKS[kind](self, said, path)

    def check_integer(self, said: dict[str, Any], path: str) -> None:
        for key, value in said.items():
            if key != "type" and not (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53):
                raise self._refusal(key, path, f" with the value {value!r}")

    def check_string(self, said: dict[str, Any], path: str) -> None:
        if "pattern" in said:
            to_xgrammar(said["pattern"], f"{self._field}: pattern at {path}")
            if not (said["pattern"].startswith("^") and said["pattern"].endswith("$")):
                raise self._refusal("pattern", path, " that is not held by ^ and $")

    def check_array(self, said: dict[str, Any], path: str) -> None:
        if "items" in said:
            self.check(said["items"], f"{path}/items")

    def check_object(self, said: dict[str, Any], path: str) -> None:
        properties = said.get("properties", {})
        for name, part in properties.items():
            self.check(part, f"{path}/properties/{name}")
        unnamed = next((name for name in said.get("required", ()) if name not in properties), None)
        if unnamed is not None:
            raise self._refusal("required", path, f" of {unnamed!r}, which is none of the properties")
        if not isinstance(said.get("additionalProperties", True), bool):
            raise self._refusal("additionalProperties", path, " with a schema")

    def _refusal(self, keyword: str, path: str, where: str = "") -> RequestError:
        return RequestError(
            f"{FIELD}.{self._field}: xgrammar does not keep the keyword {keyword!r} at {path}{where}",
            "start with the back end auto or guidance, which know more keywords",
            FIELD,
        )


CHECKS: dict[str, Callable[[_Checker, dict[str, Any], str], None]] = {
    "integer": _Checker.check_integer,
    "string": _Checker.check_string,
    "array": _Checker.check_array,
    "object": _Checker.check_object,
}
