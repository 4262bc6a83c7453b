"""Structural tags: text in which some parts obey a grammar, from JSON to Lark as llguidance reads it.

Two forms are read: {"type": "structural_tag", "format": {...}}, a tree of formats, and the older
{"type": "structural_tag", "structures": [{"begin", "schema", "end"}], "triggers": [...]}. Format of the tree: xgrammar's structural tag.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from octavo.errors import RequestError
from octavo.grammar.json_schema import JsonOptions, json_rule
from octavo.grammar.lark import literal, to_lark
from octavo.grammar.regex import to_lark_regex

FIELD = "structured_outputs"
MAX_DEPTH = 64
MAX_RULES = 20_000
ANY = r"(.|\n)*"

Specials = Callable[[str], list[str | int]]  # a text as pieces: texts, and the ids of the special tokens that it spells


def plain(text: str) -> list[str | int]:
    """The pieces of a text for a vocabulary without special tokens."""
    return [text] if text else []


class TagGrammar:
    """Collects the rules of one structural tag. `text` is then the Lark grammar, `sides` the further grammars that it names."""

    def __init__(self, tag: str | dict[str, Any], options: JsonOptions, specials: Specials = plain) -> None:
        self._options = options
        self._specials = specials
        self._rules: list[str] = []
        self._known: dict[str, str] = {}  # what was made of a format, by its JSON
        self.sides: list[dict[str, str]] = []
        top = self._expression(_format_of(tag), 0)
        self.text = "\n".join(["%llguidance {}", f"start: {top}", *self._rules, ""])

    def _rule(self, body: str, attributes: str = "") -> str:
        if len(self._rules) >= MAX_RULES:
            raise _wrong(f"more than {MAX_RULES} rules")
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}{attributes}: {body}")
        return name

    def _string(self, text: str) -> str:
        """Terminals for a fixed text; special tokens in it are those tokens."""
        return " ".join(_terminal(piece) for piece in self._specials(text)) or '""'

    def _expression(self, tag: Any, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise _wrong(f"nested more than {MAX_DEPTH} deep")
        if not isinstance(tag, dict):
            raise _wrong(f"a format must be an object, not {tag!r:.60}")
        kind = tag.get("type")
        make = _KINDS.get(kind) if isinstance(kind, str) else None
        if make is None:
            raise _wrong(f"unknown format {kind!r:.60}; known: {', '.join(sorted(_KINDS))}")
        key = json.dumps(tag)
        if key not in self._known:
            self._known[key] = make(self, tag, depth + 1)
        return self._known[key]

    def _const_string(self, tag: dict[str, Any], depth: int) -> str:
        return self._string(_text(tag, "value"))

    def _json_schema(self, tag: dict[str, Any], depth: int) -> str:
        if tag.get("style", "json") == "qwen_xml":
            return self._qwen_xml(tag, depth)
        if tag.get("style", "json") != "json":
            raise _wrong(f"unknown style {tag['style']!r:.60} of a json_schema; known: json, qwen_xml")
        return self._rule(json_rule(_need(tag, "json_schema"), self._options, "structural_tag.json_schema"))

    def _regex(self, tag: dict[str, Any], depth: int) -> str:
        return self._rule(f"/{to_lark_regex(_text(tag, 'pattern'))}/")

    def _grammar(self, tag: dict[str, Any], depth: int) -> str:
        name = f"side{len(self.sides)}"
        self.sides.append({"name": name, "lark_grammar": to_lark(_text(tag, "grammar"))})
        return f"@{name}"

    def _any_text(self, tag: dict[str, Any], depth: int) -> str:
        excludes = [re.escape(text) for text in _texts(tag, "excludes")]
        if not excludes:
            return self._rule(f"/{ANY}/")
        # a terminal has an upper-case name
        name = self._rule(f"/{ANY}/ & ~/{to_lark_regex(ANY + '(' + '|'.join(excludes) + ')' + ANY)}/").upper()
        self._rules[-1] = name + self._rules[-1][len(name) :]
        return name

    def _token(self, tag: dict[str, Any], depth: int) -> str:
        token = _need(tag, "token")
        if isinstance(token, int) and not isinstance(token, bool):
            return f"<[{token}]>"
        pieces = self._specials(token) if isinstance(token, str) else []
        if len(pieces) != 1 or not isinstance(pieces[0], int):
            raise _wrong(f"{token!r:.60} is no special token of this model")
        return f"<[{pieces[0]}]>"

    def _sequence(self, tag: dict[str, Any], depth: int) -> str:
        return self._rule(" ".join(self._expression(element, depth) for element in _list(tag, "elements")))

    def _or(self, tag: dict[str, Any], depth: int) -> str:
        return self._rule(" | ".join(self._expression(element, depth) for element in _list(tag, "elements")))

    def _optional(self, tag: dict[str, Any], depth: int) -> str:
        return f"({self._expression(_need(tag, 'content'), depth)})?"

    def _star(self, tag: dict[str, Any], depth: int) -> str:
        return f"({self._expression(_need(tag, 'content'), depth)})*"

    def _plus(self, tag: dict[str, Any], depth: int) -> str:
        return f"({self._expression(_need(tag, 'content'), depth)})+"

    def _repeat(self, tag: dict[str, Any], depth: int) -> str:
        least, most = tag.get("min", 0), tag.get("max")
        counts = [count for count in (least, most) if count is not None and count != -1]
        if any(isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 10_000 for count in counts):
            raise _wrong("min and max of a repeat must be integers, 0 .. 10000")
        return f"({self._expression(_need(tag, 'content'), depth)}){{{least},{'' if most in (None, -1) else most}}}"

    def _tag(self, tag: dict[str, Any], depth: int) -> str:
        return self._tagged(self._string(_text(tag, "begin")), tag, depth)

    def _tagged(self, begin: str, tag: dict[str, Any], depth: int) -> str:
        """A rule: begin, content, end. Free text ends at the first place where `end` stands."""
        content = _need(tag, "content")
        ends = tag.get("end", "")
        ends = [ends] if isinstance(ends, str) else ends
        if not isinstance(ends, list) or not ends or not all(isinstance(end, str) for end in ends):
            raise _wrong("end must be a string, or a list of strings")
        if isinstance(content, dict) and content.get("type") == "any_text" and any(ends):
            if not all(self._specials(end)[:1] == [end] for end in ends):  # a special token cannot stand in text
                body = f"{self._any_text(content, depth)} ({' | '.join(self._string(end) for end in ends)})"
            else:
                last = "|".join(to_lark_regex(re.escape(end)) for end in ends)
                body = self._rule(f"/{ANY}({last})/", "[lazy]")
        else:
            end = " | ".join(self._string(end) for end in ends)
            body = f"{self._expression(content, depth)} ({end})" if any(ends) else self._expression(content, depth)
        return self._rule(f"{begin} {body}")

    def _triggered_tags(self, tag: dict[str, Any], depth: int) -> str:
        """Free text, in which each trigger must begin one of the tags."""
        triggers, tags = _texts(tag, "triggers"), _list(tag, "tags")
        if not triggers or not all(triggers):
            raise _wrong("triggers must be non-empty strings")
        rules = []
        for each in tags:
            begin = _text(each if isinstance(each, dict) else {}, "begin")
            trigger = next((trigger for trigger in triggers if begin.startswith(trigger)), None)
            if trigger is None:
                raise _wrong(f"the tag that begins with {begin!r:.60} begins with none of the triggers")
            rules.append(self._tagged(f"{self._trigger(trigger)} {self._string(begin[len(trigger) :])}", each, depth))
        tail = self._rule(f"/{ANY}/")
        some = self._rule(" | ".join(rules))
        is_needed, is_single = bool(tag.get("at_least_one")), bool(tag.get("stop_after_first"))
        if is_single:
            return some if is_needed else self._rule(f"{some} | {tail}")
        return self._rule(f"{some}{'+' if is_needed else '*'} {tail}")

    def _trigger(self, trigger: str) -> str:
        pieces = self._specials(trigger)
        if isinstance(pieces[0], int):
            return f"{self._rule(f'/{ANY}/')} {self._string(trigger)}"
        if len(pieces) > 1:
            raise _wrong(f"the trigger {trigger!r:.60} has a special token in its middle")
        return self._rule(f"/{ANY}{to_lark_regex(re.escape(trigger))}/", "[lazy]")

    def _tags_with_separator(self, tag: dict[str, Any], depth: int) -> str:
        some = self._rule(" | ".join(self._expression({"type": "tag", **each}, depth) for each in _list(tag, "tags")))
        separator = self._string(_text(tag, "separator", ""))
        if not tag.get("stop_after_first"):
            some = self._rule(f"{some} ({separator} {some})*")
        return some if tag.get("at_least_one") else f"({some})?"

    def _qwen_xml(self, tag: dict[str, Any], depth: int) -> str:
        schema = _need(tag, "json_schema")
        elements = xml_parameters(schema if isinstance(schema, dict) else {}, "<parameter={name}>\n", "\n</parameter>\n")
        return self._expression({"type": "sequence", "elements": elements}, depth) if elements else '""'


_KINDS: dict[str, Callable[[TagGrammar, dict[str, Any], int], str]] = {
    "const_string": TagGrammar._const_string,
    "json_schema": TagGrammar._json_schema,
    "regex": TagGrammar._regex,
    "grammar": TagGrammar._grammar,
    "any_text": TagGrammar._any_text,
    "token": TagGrammar._token,
    "sequence": TagGrammar._sequence,
    "or": TagGrammar._or,
    "optional": TagGrammar._optional,
    "star": TagGrammar._star,
    "plus": TagGrammar._plus,
    "repeat": TagGrammar._repeat,
    "tag": TagGrammar._tag,
    "triggered_tags": TagGrammar._triggered_tags,
    "tags_with_separator": TagGrammar._tags_with_separator,
    "qwen_xml_parameter": TagGrammar._qwen_xml,
}


def xml_parameters(schema: dict[str, Any], begin: str, end: str, is_json: Callable[[dict[str, Any]], bool] | None = None) -> list[Any]:
    """Formats for the properties of an object schema, in their order, each between `begin` (which holds {name}) and `end`.

    A string stands there as it is, anything else as JSON. Which are strings is told by is_json, else by `is_text`.
    """
    required = schema.get("required", [])
    elements: list[Any] = []
    for name, value in properties_of(schema).items():
        text = {"type": "tag", "begin": begin.replace("{name}", name), "content": value_format(value, schema, is_json), "end": end}
        elements.append(text if name in required else {"type": "optional", "content": text})
    return elements


def properties_of(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return properties if isinstance(properties, dict) else {}


def value_format(value: Any, root: dict[str, Any], is_json: Callable[[dict[str, Any]], bool] | None = None) -> dict[str, Any]:
    """The format of one value that is written without quotes if it is a string."""
    schema = value if isinstance(value, dict) else {}
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
        return {"type": "or", "elements": [{"type": "const_string", "value": choice} for choice in choices]}
    if (is_json is not None and is_json(schema)) or (is_json is None and not is_text(schema, root)):
        return {"type": "json_schema", "json_schema": with_definitions(value, root)}
    pattern = schema.get("pattern")
    return {"type": "regex", "pattern": pattern} if isinstance(pattern, str) else {"type": "any_text"}


def is_text(schema: Any, root: dict[str, Any], depth: int = 0) -> bool:
    """Whether a value may be a string: then it is written as it stands, without quotes. An unknown type counts as one."""
    if not isinstance(schema, dict) or depth > 8:
        return True
    kind = schema.get("type")
    if isinstance(kind, (str, list)):
        return "string" in ([kind] if isinstance(kind, str) else kind)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = target.get(step) if isinstance(target, dict) else None
        return is_text(target, root, depth + 1)
    branches = [branch for key in ("anyOf", "oneOf", "allOf") if isinstance(schema.get(key), list) for branch in schema[key]]
    if branches:
        return any(is_text(branch, root, depth + 1) for branch in branches)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        return any(isinstance(value, str) for value in values)
    return not any(
        key in schema for key in ("properties", "items", "prefixItems", "minimum", "maximum", "multipleOf", "additionalProperties")
    )


def with_definitions(schema: Any, root: dict[str, Any]) -> Any:
    """A part of a schema that stands alone: it takes the definitions along that it may refer to."""
    if not isinstance(schema, dict):
        return schema
    return {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **schema}


def _format_of(tag: str | dict[str, Any]) -> Any:
    if isinstance(tag, str):
        try:
            tag = json.loads(tag)
        except (ValueError, RecursionError) as error:
            raise _wrong(f"it is not JSON: {error}") from None
    if not isinstance(tag, dict) or tag.get("type") != "structural_tag":
        raise _wrong('it must be an object with "type": "structural_tag"')
    if "format" in tag:
        return tag["format"]
    structures = _list(tag, "structures")
    if not all(isinstance(each, dict) for each in structures):
        raise _wrong("structures must be objects with begin, schema and end")
    tags = [{**each, "content": {"type": "json_schema", "json_schema": each.get("schema", {})}} for each in structures]
    return {"type": "triggered_tags", "triggers": _texts(tag, "triggers"), "tags": tags}


def _terminal(piece: str | int) -> str:
    return literal(piece) if isinstance(piece, str) else f"<[{piece}]>"


def _need(tag: dict[str, Any], key: str) -> Any:
    if key not in tag:
        raise _wrong(f"a {tag.get('type', 'tag')} needs {key}")
    return tag[key]


def _text(tag: dict[str, Any], key: str, default: str | None = None) -> str:
    value = tag.get(key, default)
    if not isinstance(value, str):
        raise _wrong(f"a {tag.get('type', 'tag')} needs {key}, a string")
    return value


def _texts(tag: dict[str, Any], key: str) -> list[str]:
    value = tag.get(key) or []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _wrong(f"{key} must be a list of strings")
    return value


def _list(tag: dict[str, Any], key: str) -> list[Any]:
    value = tag.get(key)
    if not isinstance(value, list) or not value:
        raise _wrong(f"{key} must be a list that is not empty")
    return value


def _wrong(fact: str) -> RequestError:
    return RequestError(f"{FIELD}.structural_tag: {fact}", parameter=FIELD)
