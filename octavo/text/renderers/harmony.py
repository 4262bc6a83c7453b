"""Harmony, the format of gpt-oss: every message in a channel, tools as TypeScript, thoughts kept until an answer is given.

Source: the renderer that OpenAI publishes (openai-harmony), and for messages of the chat API the template of gpt-oss.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from octavo import environment
from octavo.errors import RequestError
from octavo.text.conversation import Conversation, function_of
from octavo.text.renderers._typescript import type_of

CONTENT_FORMAT = "string"
_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
_EFFORTS = ("low", "medium", "high")
_INSTRUCTING = ("system", "developer")


def render(conversation: Conversation) -> str:
    messages = conversation.messages
    instructions = messages[0]["content"] if messages[0]["role"] in _INSTRUCTING else ""
    system, developer = _head(conversation, instructions)
    parts = [_message("system", system)]
    if developer:
        parts.append(_message("developer", developer))
    parts.extend(_messages(messages[1 if messages[0]["role"] in _INSTRUCTING else 0 :]))
    if conversation.add_generation_prompt:
        parts.append("<|start|>assistant")
    return "".join(parts)


def _head(conversation: Conversation, instructions: str) -> tuple[str, str]:
    """The system's message and the developer's: who the model is, and what it shall do with what."""
    variables = conversation.variables
    identity = variables.get("model_identity", _IDENTITY)
    if environment.gpt_oss_harmony_system_instructions() and instructions:
        identity, instructions = f"{identity}\n{instructions}", ""
    effort = variables.get("reasoning_effort") or "medium"
    if effort not in _EFFORTS:
        raise RequestError(
            f"reasoning_effort {effort!r} is not one that this model knows", f"send {', '.join(_EFFORTS)}", "reasoning_effort"
        )
    system = (
        f"{identity}\nKnowledge cutoff: 2024-06\nCurrent date: {_today()}\n\nReasoning: {effort}\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message."
    )
    if conversation.tools:
        system += "\nCalls to these tools must go to the commentary channel: 'functions'."
    return system, "\n\n".join(filter(None, [_instruct(instructions), _declare(conversation.tools or [])]))


def _today() -> str:
    return environment.system_start_date() or datetime.now().strftime("%Y-%m-%d")


def _instruct(instructions: str) -> str:
    return f"# Instructions\n\n{instructions}" if instructions else ""


def _declare(tools: list[Any]) -> str:
    if not tools:
        return ""
    types = "".join(f"{_declaration(function_of(tool))}\n\n" for tool in tools)
    return f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{types}}} // namespace functions"


def _declaration(function: dict[str, Any]) -> str:
    told = "".join(f"// {line}\n" for line in (function.get("description") or "").splitlines())
    parameters = function.get("parameters")
    return f"{told}type {function['name']} = ({'' if parameters is None else f'_: {type_of(parameters)}'}) => any;"


def _message(author: str, text: str, channel: str = "", end: str = "<|end|>") -> str:
    return f"<|start|>{author}{f'<|channel|>{channel}' if channel else ''}<|message|>{text}{end}"


def _messages(messages: list[dict[str, Any]]) -> Iterator[str]:
    names = {call.get("id"): function_of(call)["name"] for message in messages for call in message.get("tool_calls") or []}
    answered = max((index for index, message in enumerate(messages) if _answers(message)), default=-1)
    for index, message in enumerate(messages):
        content = message["content"]
        match message["role"]:
            case "system" | "developer":
                yield _message("developer", _instruct(content))
            case "user":
                yield _message("user", content)
            case "tool":
                name = names.get(message.get("tool_call_id"), message.get("name"))
                if name is None:
                    raise RequestError("a tool's message answers no call", "send the assistant's message that calls it", "messages")
                yield _message(f"functions.{name} to=assistant", content, "commentary")
            case "assistant":
                yield from _said(message, index > answered)
            case role:
                raise RequestError(f"this model's format has no role {role!r}", "use system, developer, user, assistant, tool", "messages")


def _answers(message: dict[str, Any]) -> bool:
    """Whether a message is an answer: what was thought before it is forgotten."""
    return message["role"] == "assistant" and not message.get("tool_calls") and bool(message["content"])


def _said(message: dict[str, Any], remembers: bool) -> Iterator[str]:
    calls, content = message.get("tool_calls"), message["content"]
    if remembers and message.get("reasoning_content"):
        yield _message("assistant", message["reasoning_content"], "analysis")
    if content:
        yield _message("assistant", content, "commentary" if calls else "final")
    for call in calls or []:
        function = function_of(call)
        arguments = function.get("arguments", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        yield _message(f"assistant to=functions.{function['name']}", text, "commentary json", "<|call|>")
