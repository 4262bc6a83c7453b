"""Kimi-K3: XTML, tags between special tokens; tool definitions come first, and the model is told of tool_choice and response_format.

Source: the encoder that Moonshot AI publishes with the model (encoding_k3.py). What it tokenizes apart, this does too.
"""

import json
from collections.abc import Iterator
from typing import Any

from octavo.errors import RequestError
from octavo.text.conversation import Conversation, function_of
from octavo.text.rendered import BREAK

CONTENT_FORMAT = "string"
_OPEN, _CLOSE, _SEP, _END = "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"
_EFFORTS = ("low", "high", "max")
_TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n"
_NEW_TOOLS = """## New Tools Available
The system dynamically extends the toolset via lazy-loading.
You have access to all existing and extended tools.
Here are the specs for the extended tools.

"""
_CHOICES = {
    "required": "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.",
}


def render(conversation: Conversation) -> str:
    variables = conversation.variables
    thinks, effort = _thinking(variables)
    parts = [_declare(_TOOLS, conversation.tools)] if conversation.tools else []
    if thinks:
        told = (
            "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), supported values "
            f"include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort={effort}`."
        )
        parts.append(_tell("thinking-effort", told))
    parts.extend(_messages(conversation.messages, thinks))
    choice = conversation.tool_choice if conversation.tools else None
    choice = variables.get("tool_choice", choice)
    if isinstance(choice, str) and choice in _CHOICES:
        parts.append(_tell("tool-choice", _CHOICES[choice]))
    parts.append(_response_format(variables.get("response_format", conversation.response_format)))
    if conversation.add_generation_prompt:
        parts.append(_open("message", role="assistant") + _open("think" if thinks else "response"))
    return "".join(parts)


def _thinking(variables: dict[str, Any]) -> tuple[bool, str]:
    """Whether the model thinks, and how hard. Raises RequestError for an effort that it does not know."""
    effort = variables.get("reasoning_effort")
    switch = variables.get("thinking", variables.get("enable_thinking"))
    if switch is None:
        switch = effort != "none"
    chosen = variables.get("thinking_effort", None if effort == "none" else effort) or "max"
    if chosen not in _EFFORTS:
        raise RequestError(
            f"reasoning_effort {chosen!r} is not one that this model knows", f"send none, {', '.join(_EFFORTS)}", "reasoning_effort"
        )
    return bool(switch), chosen


def _open(tag: str, /, **attributes: Any) -> str:
    texts = [f'{BREAK} {key}{BREAK}="{BREAK}{_attribute(value)}{BREAK}"' for key, value in attributes.items()]
    return f"{_OPEN}{tag}{''.join(texts)}{_SEP}"


def _attribute(value: Any) -> str:
    return str(value).replace("&", "&amp;").replace('"', "&quot;")


def _close(tag: str) -> str:
    return f"{_CLOSE}{tag}{_SEP}"


def _message(text: str, /, **attributes: Any) -> str:
    return f"{_open('message', **{key: value for key, value in attributes.items() if value})}{text}{_close('message')}{_END}"


def _tell(kind: str, text: str) -> str:
    """What the system itself says."""
    return _message(text, role="system", type=kind)


def _sorted_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _declare(head: str, tools: Any) -> str:
    return _tell("tool-declare", f"{head}```json\n{_sorted_json(tools)}\n```")


def _messages(messages: list[dict[str, Any]], thinks: bool) -> Iterator[str]:
    calls: list[Any] = []
    order = 0
    for message in _in_order(messages):
        role, name, content = message["role"], message.get("name"), message["content"]
        match role:
            case "system" if message.get("tools"):
                yield _declare(_NEW_TOOLS, message["tools"])
            case "system" | "developer" | "user":
                yield _message(content, role="user" if role == "user" else "system", name=name)
            case "assistant":
                calls, order = message.get("tool_calls") or [], 0
                yield _message(_said(message, calls, thinks), role=role, name=name)
            case "tool":
                order += 1
                called = message.get("tool", name) or (function_of(calls[order - 1])["name"] if order <= len(calls) else None)
                if called is None:
                    raise RequestError(
                        "a tool's message answers no call", "send its name, or the assistant's message that calls it", "messages"
                    )
                yield _message(content, role=role, tool=called, index=order)
            case _:
                raise RequestError(f"this model's format has no role {role!r}", "use system, user, assistant or tool", "messages")


def _in_order(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The messages, results of tools in the order of the calls and under the names of these; as they are, where one answers no call."""
    places: dict[str, tuple[int, str]] = {}
    run: list[dict[str, Any]] = []
    for message in [*messages, {"role": ""}]:
        if message["role"] == "tool":
            run.append(message)
            continue
        found = [places.get(str(result.get("tool_call_id", result.get("id")))) for result in run]
        if all(found):
            pairs = sorted(zip(found, run), key=lambda pair: pair[0][0] if pair[0] else 0)
            run = [result | {"tool": place[1]} for place, result in pairs if place]
        yield from run
        run = []
        if message["role"]:
            yield message
        if message["role"] == "assistant":
            places = _places(message.get("tool_calls") or [])


def _places(calls: list[Any]) -> dict[str, tuple[int, str]]:
    """The place and the name of each call, by its id and by name:place."""
    places: dict[str, tuple[int, str]] = {}
    for place, call in enumerate(calls):
        name = function_of(call)["name"]
        for key in (str(call.get("id")), f"{name}:{place}"):
            places.setdefault(key, (place, name))
    return places


def _said(message: dict[str, Any], calls: list[Any], thinks: bool) -> str:
    thought = message.get("reasoning_content") or ""
    text = f"{_open('think')}{thought if thought.strip() else ''}{_close('think')}" if thinks else ""
    text += f"{_open('response')}{message['content']}{_close('response')}"
    if calls:
        text += f"{_open('tools')}{''.join(_call(call, index) for index, call in enumerate(calls, 1))}{_close('tools')}"
    return text


def _call(call: Any, index: int) -> str:
    function = function_of(call)
    arguments = function.get("arguments")
    if isinstance(arguments, str) and arguments.strip():  # no JSON: as it was written
        inside = f"{_open('json', type='object')}{arguments}{_close('json')}"
    elif isinstance(arguments, dict):
        inside = "".join(
            f"{_open('argument', key=key, type=_type(value))}{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            f"{_close('argument')}"
            for key, value in arguments.items()
        )
    elif not arguments:
        inside = ""
    else:
        raise RequestError("the arguments of a tool call must be a JSON object", parameter="messages")
    return f"{_open('call', tool=function['name'], index=index)}{inside}{_close('call')}"


def _type(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case int() | float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
    return "array"


def _response_format(wanted: Any) -> str:
    kind = wanted.get("type") if isinstance(wanted, dict) else wanted
    if kind not in ("json_object", "json_schema"):
        return ""
    told = (
        f"The system is invoked with `response_format={kind}`.\n"
        "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
    )
    if kind == "json_schema":
        schema = wanted.get("json_schema") if isinstance(wanted, dict) else None
        if isinstance(schema, dict):
            schema = schema.get("schema", schema.get("json_schema", schema))
        told += f"\nThe JSON data must match the following schema:\n```json\n{_sorted_json(schema)}\n```"
    return _tell("response-format", told)
