"""Conversation: what a prompt is made of, checked and in plain data, with every special token that users wrote in it marked as text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.errors import RequestError
from octavo.text import final_message
from octavo.text import messages as message_forms
from octavo.text.rendered import Controls

_NOTHING_SPECIAL = Controls(())


@dataclass(slots=True, kw_only=True)
class Conversation:
    """messages: content in the form that was asked for, arguments of tool calls as objects where they are JSON.

    variables: names for the template. tool_choice and response_format: as the request has them, for formats that tell the model.
    format_facts: what the tokenizer's file says of its format.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    variables: dict[str, Any] = field(default_factory=dict)
    tool_choice: Any = None
    response_format: Any = None
    format_facts: Mapping[str, Any] = field(default_factory=dict)


def prepare(
    messages: Sequence[Mapping[str, Any]],
    content_format: str,
    *,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    tool_choice: Any = None,
    response_format: Any = None,
    format_facts: Mapping[str, Any] | None = None,
    controls: Controls | None = None,
) -> Conversation:
    """A conversation to be rendered. controls: the special tokens whose text stays text; None trusts it. Raises RequestError."""
    final_message.check(add_generation_prompt, continue_final_message)
    marks = _NOTHING_SPECIAL if controls is None else controls
    plain = message_forms.plain
    prepared: list[dict[str, Any]] = marks.mark(message_forms.prepare(messages, content_format))
    if continue_final_message:
        final_message.open_final(prepared)
    return Conversation(
        messages=prepared,
        tools=marks.mark(plain(tools or None)),
        documents=marks.mark(plain(documents or None)),
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        variables={name: marks.mark(plain(value)) for name, value in (variables or {}).items()},
        tool_choice=marks.mark(plain(tool_choice)),
        response_format=marks.mark(plain(response_format)),
        format_facts=format_facts or {},
    )


def with_written_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The messages with the arguments of calls as JSON instead of objects; None if there are none."""
    found = False
    result = []
    for message in messages:
        calls = []
        for call in message.get("tool_calls", ()):
            function = call.get("function") if isinstance(call, dict) else None
            if function and isinstance(arguments := function.get("arguments"), dict):
                found = True
                call = {**call, "function": {**function, "arguments": json.dumps(arguments, ensure_ascii=False)}}
            calls.append(call)
        result.append(message | ({"tool_calls": calls} if calls else {}))
    return result if found else None


def function_of(tool: Any) -> dict[str, Any]:
    """The function of a tool, or of a tool call. Raises RequestError if it has none with a name."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError("a tool must be an object with a function that has a name", parameter="tools")
    return function
