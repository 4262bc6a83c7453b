"""Tools: what a request offers the model to call, whether it must, and how the calls are named."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import RequestError
from octavo.parsing.events import Tool

MOST_TOOLS = 1024
_NAME = re.compile(r"[\w./:@+-]{1,128}")
_CHOICES = "tool_choice must be none, auto, required or {type: function, function: {name: ...}}"

# JSON schemas, for the description of the API
FUNCTION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "description": {"type": "string"},
        "parameters": {"type": "object"},
        "strict": {"type": "boolean"},
    },
    "required": ["name"],
}
TOOLS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {"type": {"const": "function"}, "function": FUNCTION_SCHEMA},
        "required": ["type", "function"],
    },
}
_NAMED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
    "required": ["type", "function"],
}
CHOICE_SCHEMA: dict[str, Any] = {"anyOf": [{"enum": ["none", "auto", "required"]}, _NAMED]}


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of one request. choice: "none", "auto", "required", or "named" with the name of the one that must be called."""

    tools: tuple[Tool, ...] = ()
    choice: str = "none"
    name: str | None = None
    is_parallel: bool = True

    @property
    def is_open(self) -> bool:
        """The model may call."""
        return self.choice != "none"

    @property
    def is_forced(self) -> bool:
        """The model must call."""
        return self.choice in ("required", "named")

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """Those that the model may call."""
        return self.tools if self.name is None else tuple(tool for tool in self.tools if tool.name == self.name)


def read_tools(given: Sequence[Any] | None) -> tuple[Tool, ...]:
    """A request's tools. Raises RequestError for what is no tool."""
    if given is None:
        return ()
    if not given:
        raise _wrong("tools must not be an empty list", "leave tools away")
    if len(given) > MOST_TOOLS:
        raise _wrong(f"tools: {len(given)} are more than {MOST_TOOLS}")
    tools = tuple(_tool(each, f"tools[{index}]") for index, each in enumerate(given))
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _wrong(f"tools: two are named {twice!r}", "give each a name of its own")
    return tools


def read_offer(given: Sequence[Any] | None, choice: Any, is_parallel: bool) -> Offer:
    """What a request's tools, tool_choice and parallel_tool_calls mean. Raises RequestError that names the field."""
    tools = read_tools(given)
    if choice is None:
        return Offer(tools, "auto" if tools else "none", None, is_parallel)
    if isinstance(choice, str) and choice in ("none", "auto", "required"):
        if choice == "required" and not tools:
            raise _wrong("tool_choice required needs tools", "send tools, or leave tool_choice away", "tool_choice")
        return Offer(tools, choice if tools else "none", None, is_parallel)
    if not isinstance(choice, Mapping) or choice.get("type", "function") != "function":
        raise _wrong(_CHOICES, None, "tool_choice")
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise _wrong(_CHOICES, None, "tool_choice")
    if all(tool.name != name for tool in tools):
        known = ", ".join(tool.name for tool in tools[:20]) or "none"
        raise _wrong(f"tool_choice names {name!r}, which is none of the tools", f"tools: {known}", "tool_choice")
    return Offer(tools, "named", name, is_parallel=False)


def _tool(given: Any, where: str) -> Tool:
    if not isinstance(given, Mapping) or given.get("type", "function") != "function":
        raise _wrong(f"{where} must be {{type: function, function: {{...}}}}", "other kinds of tools are not available in octavo")
    function = given.get("function")
    if not isinstance(function, Mapping):
        raise _wrong(f"{where}.function must be an object")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(f"{where}.function.name must be 1 to 128 letters, digits or _ - . / : @ +")
    if not isinstance(function.get("description") or "", str):
        raise _wrong(f"{where}.function.description must be a string")
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping) and parameters is not None:
        raise _wrong(f"{where}.function.parameters must be a JSON schema, which is an object")
    if parameters and parameters.get("type", "object") != "object":
        raise _wrong(f"{where}.function.parameters must describe an object: arguments have names")
    strict = function.get("strict")
    if not isinstance(strict, bool) and strict is not None:
        raise _wrong(f"{where}.function.strict must be true or false")
    return Tool(name, dict(parameters or {}), bool(strict))


def _wrong(fact: str, hint: str | None = None, parameter: str = "tools") -> RequestError:
    return RequestError(fact, hint, parameter)


def call_id(tool_format: str | None, name: str, number: int) -> str:
    """An id for a call that the model gave none, as its template reads ids. number: how many calls the conversation had before."""
    if tool_format is not None and tool_format.startswith("kimi"):
        return f"functions.{name}:{number}"
    if tool_format == "mistral":
        return "".join(secrets.choice(_ALPHABET) for _ in range(9))
    return f"chatcmpl-tool-{secrets.token_hex(16)}"


_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def num_calls(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many calls a conversation has."""
    return sum(len(calls) for message in messages if isinstance(calls := message.get("tool_calls"), list))
