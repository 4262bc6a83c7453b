"""Calls that a model may make of its own accord: once it begins one, its form and the arguments of a strict tool are forced.

Where a request asks for a form of the answer besides (a schema, say), the answer is of that form or it is calls.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.grammar.tool_choice import Tool, calls
from octavo.grammar.tool_syntax import SYNTAXES, Format, Syntax
from octavo.protocol.sampling_params import StructuredOutputsParams

LEVELS = ("auto", "function", "parameter")  # what is forced: arguments of strict tools; the form of every call; all arguments
_MANY_CHANNELS = ("openai",)  # a call begins as any other message does, so that its beginning cannot be told from theirs
_MARKER = re.compile(r"<[^<>]+>|\[[A-Z_]+\]")
_SHORT = 5  # characters; what is no longer begins other texts too


def spec_when_called(
    tool_format: str, tools: Sequence[Tool], level: str = "auto", parallel: bool = True, otherwise: StructuredOutputsParams | None = None
) -> StructuredOutputsParams | None:
    """The grammar of an answer that may hold calls; None if nothing has to be forced, or can be in this format.

    level: one of LEVELS. otherwise: what the answer must be where it is no calls; kept alone in a format whose calls cannot be forced, or
    whose calls begin as JSON does.
    """
    name = tool_format.lower().replace("-", "_")
    syntax = None if name in _MANY_CHANNELS else SYNTAXES.get(name)
    if syntax is None:
        return otherwise
    if otherwise is not None:
        plain = None if _is_bare(_trigger(syntax)) else _format_of(otherwise)
        return otherwise if plain is None else _spec({"type": "or", "elements": [plain, calls(syntax, tools, parallel)]}, otherwise)
    if level == "auto" and not any(_is_strict(tool) for tool in tools):
        return None
    shown = tools if level == "parameter" else [tool if _is_strict(tool) else _Loose(tool.name) for tool in tools]
    return _spec(_among_text(syntax, shown, parallel), StructuredOutputsParams())


class _Loose:
    """A tool that takes any arguments."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parameters: dict[str, Any] | None = None


def _is_strict(tool: Tool) -> bool:
    return bool(getattr(tool, "strict", False))


def _spec(form: Format, options: StructuredOutputsParams) -> StructuredOutputsParams:
    """A structural tag with the options of what it stands for."""
    kept = {name: getattr(options, name) for name in ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")}
    return StructuredOutputsParams(structural_tag=json.dumps({"type": "structural_tag", "format": form}), **kept)


def _among_text(syntax: Syntax, tools: Sequence[Tool], parallel: bool) -> Format:
    """Text, and calls wherever one begins; or, where what begins a call begins other texts too, either text or calls."""
    trigger = _trigger(syntax)
    if _is_bare(trigger):
        other = {"type": "optional", "content": {"type": "regex", "pattern": rf"[^{re.escape(trigger[0])}\s](.|\n)*"}}
        return {"type": "or", "elements": [calls(syntax, tools, parallel), other]}
    if syntax.opening:
        forms = [_after(trigger, calls(syntax, tools, parallel))]
    else:
        forms = [_after(trigger, syntax.call(tool.name, tool.parameters or {})) for tool in tools]
    tag = {"begin": trigger, "content": {"type": "or", "elements": forms}, "end": ""}
    is_single = bool(syntax.opening) or not (parallel and syntax.is_repeatable)
    return {"type": "triggered_tags", "triggers": [trigger], "tags": [tag], "stop_after_first": is_single}


def _trigger(syntax: Syntax) -> str:
    """What a call begins with: a marker, if there is one."""
    begin = (syntax.opening or syntax.begin.partition("{name}")[0]).strip()
    marker = _MARKER.match(begin)
    return begin if marker is None else marker[0]


def _is_bare(trigger: str) -> bool:
    """Whether other texts begin so too."""
    return len(trigger) < _SHORT or (_MARKER.match(trigger) is None and trigger[0] in "[{")


def _after(trigger: str, form: Format) -> Format:
    """The rest of a sequence that begins with this text."""
    first, *rest = form["elements"]
    begun = {**first, "value": first["value"].removeprefix(trigger)}
    return {"type": "sequence", "elements": [begun, *rest] if begun["value"] else rest}


def _format_of(asked: StructuredOutputsParams) -> Format | None:
    """What a request asks for, as a part of a structural tag; None for a tag of the older form, which has no such."""
    if asked.json is not None:
        return {"type": "json_schema", "json_schema": msgspec.json.decode(asked.json) if isinstance(asked.json, str) else asked.json}
    if asked.regex is not None:
        return {"type": "regex", "pattern": asked.regex}
    if asked.choice is not None:
        return {"type": "or", "elements": [{"type": "const_string", "value": choice} for choice in asked.choice]}
    if asked.grammar is not None:
        return {"type": "grammar", "grammar": asked.grammar}
    if asked.json_object:
        return {"type": "json_schema", "json_schema": {"type": "object"}}
    try:
        tag = msgspec.json.decode(asked.structural_tag or "{}")
    except msgspec.DecodeError:
        return None
    form: Format | None = tag.get("format") if isinstance(tag, dict) else None
    return form
