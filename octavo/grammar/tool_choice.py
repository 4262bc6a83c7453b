"""Forced tool calls: a structural tag in the syntax of a tool format, so that the format's own parser reads what comes of it."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

from octavo.errors import RequestError
from octavo.grammar.tool_syntax import SYNTAXES, Syntax
from octavo.protocol.sampling_params import StructuredOutputsParams

FIELD = "tool_choice"
MOST_NUMBERED = 8  # calls of one answer, where a format numbers them


class Tool(Protocol):
    """parameters: the JSON schema of the arguments."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> dict[str, Any] | None: ...


def spec_for(tool_format: str | None, tools: Sequence[Tool], choice: str, parallel: bool = True) -> StructuredOutputsParams:
    """The grammar of one call or, where `parallel`, of several.

    choice: "required", or the name of the one tool that must be called. tool_format None: a JSON array of {"name", "parameters"}, and for
    a named tool its arguments alone. Raises RequestError for a format whose syntax is not known, and for a name that no tool has.
    """
    chosen = list(tools) if choice == "required" else [tool for tool in tools if tool.name == choice]
    if not chosen:
        raise RequestError(f"{FIELD}: there is no tool named {choice!r}", f"tools: {', '.join(tool.name for tool in tools)}", FIELD)
    if tool_format is None:
        return _without_format(chosen, choice != "required", parallel)
    syntax = SYNTAXES.get(tool_format.lower().replace("-", "_"))
    if syntax is None:
        known = ", ".join(sorted(SYNTAXES))
        raise RequestError(f"{FIELD}: calls in the format {tool_format} cannot be forced", f"formats whose calls can be: {known}", FIELD)
    return StructuredOutputsParams(structural_tag=json.dumps({"type": "structural_tag", "format": calls(syntax, chosen, parallel)}))


def calls(syntax: Syntax, tools: Sequence[Tool], parallel: bool) -> dict[str, Any]:
    """The structural tag's format: one call of these tools, or one and more."""
    opening, separator, closing = ({"type": "const_string", "value": text} for text in (syntax.opening, syntax.separator, syntax.closing))
    body = [opening, _one_of(syntax, tools, 0)]
    if parallel and syntax.is_numbered:
        more: dict[str, Any] | None = None
        for index in range(MOST_NUMBERED - 1, 0, -1):
            elements = [separator, _one_of(syntax, tools, index), *([more] if more else [])]
            more = {"type": "optional", "content": _sequence(elements)}
        body += [more] if more else []
    elif parallel and syntax.is_repeatable:
        body.append({"type": "star", "content": _sequence([separator, body[1]])})
    return _sequence([*body, closing])


def _one_of(syntax: Syntax, tools: Sequence[Tool], index: int) -> dict[str, Any]:
    return {"type": "or", "elements": [syntax.call(tool.name, tool.parameters or {}, index) for tool in tools]}


def _sequence(elements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "sequence", "elements": [part for part in elements if part.get("value") != ""]}


def _without_format(tools: Sequence[Tool], is_named: bool, parallel: bool) -> StructuredOutputsParams:
    if is_named:
        return StructuredOutputsParams(json=tools[0].parameters or {"type": "object"})
    item: dict[str, Any] = {"anyOf": []}
    definitions: dict[str, Any] = {}
    for tool in tools:
        schema = dict(tool.parameters or {"type": "object"})
        for key in ("$defs", "definitions"):
            if key in schema:
                _add_definitions(definitions.setdefault(key, {}), schema.pop(key))
        described = {"name": {"enum": [tool.name]}, "parameters": schema}
        required = ["name", "parameters"]
        item["anyOf"].append({"type": "object", "properties": described, "required": required, "additionalProperties": False})
    array: dict[str, Any] = {"type": "array", "minItems": 1, "items": item, **definitions}
    if not parallel:
        array["maxItems"] = 1
    return StructuredOutputsParams(json=array)


def _add_definitions(definitions: dict[str, Any], more: dict[str, Any]) -> None:
    """Add definitions of one tool to those of the others. Raises RequestError for two that differ under one name."""
    for name, schema in more.items():
        if definitions.setdefault(name, schema) != schema:
            raise RequestError(f"tools: two of them define {name!r} differently in $defs", "give the definitions different names", "tools")
