"""Messages as templates read them: plain data, content in the shape the template expects, tool arguments as objects."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import RequestError

_REASONING = ("reasoning_content", "reasoning", "thinking")
_JOINTS = {"string": "\n", "paragraphs": "\n\n"}
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "thinking")  # kinds of parts that are text, under "text" or their own name


def prepare(messages: Sequence[Mapping[str, Any]], content_format: str) -> list[dict[str, Any]]:
    """A copy of the messages for a template.

    content_format: "string" joins text parts with a newline, "paragraphs" with an empty line; "openai" makes a list of parts of every
    content; "as_given" leaves strings and lists of parts as they are. A content that is null or missing is "". Raises RequestError for
    what is no message.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)) or not messages:
        raise RequestError("messages must be a non-empty list", parameter="messages")
    return [_message(message, index, content_format) for index, message in enumerate(messages)]


def _message(given: Any, index: int, content_format: str) -> dict[str, Any]:
    message: Any = plain(given)
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"messages[{index}] must be an object with a role", parameter="messages")
    message = {key: value for key, value in message.items() if value is not None}
    for name in ("name", "tool_call_id"):
        if not isinstance(message.get(name, ""), str):
            raise RequestError(f"messages[{index}].{name} must be a string", parameter="messages")
    message["content"] = _content(message.get("content"), index, content_format)
    if "tool_calls" in message:
        if not isinstance(message["tool_calls"], list):
            raise RequestError(f"messages[{index}].tool_calls must be a list", parameter="messages")
        message["tool_calls"] = [_tool_call(call, index) for call in message["tool_calls"]]
        if not message["tool_calls"]:
            del message["tool_calls"]
    reasoning = next((message[name] for name in _REASONING if name in message), None)
    if reasoning is not None:
        for name in ("reasoning_content", "thinking"):
            message.setdefault(name, reasoning)
    return dict(message)


def _content(content: Any, index: int, content_format: str) -> Any:
    if content is None:
        content = ""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content_format == "openai" else content
    if not isinstance(content, list):
        raise RequestError(f"messages[{index}].content must be a string or a list of parts", parameter="messages")
    parts = [_part(part, index) for part in content]
    if content_format not in _JOINTS:
        return parts
    texts = []
    for part in parts:
        if not isinstance(part.get("text"), str):
            raise RequestError(
                f"messages[{index}].content has a part of type {part.get('type')!r}, and this chat template takes text only",
                "send text, or serve a model whose template takes such parts",
                "messages",
            )
        texts.append(part["text"])
    return _JOINTS[content_format].join(texts)


def _part(part: Any, index: int) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict) or not isinstance(part.get("type", "text"), str):
        raise RequestError(f"messages[{index}].content: a part must be an object with a type", parameter="messages")
    if part.get("type") in _TEXT_PARTS:
        text = part.get("text", part.get(part["type"]))
        if not isinstance(text, str):
            raise RequestError(f"messages[{index}].content: a part of type {part['type']!r} must have a text", parameter="messages")
        return {**part, "type": "text", "text": text}
    return part


def _tool_call(call: Any, index: int) -> Any:
    """Arguments travel as a string of JSON; templates read them as an object."""
    if not isinstance(call, dict) or not isinstance(function := call.get("function", {}), dict):
        raise RequestError(f"messages[{index}].tool_calls must hold objects with a function", parameter="messages")
    if "function" not in call:
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except ValueError:
            return call
        return {**call, "function": {**function, "arguments": arguments}}
    return call


def plain(value: Any) -> Any:
    """Plain data of exact types: what a template is given has no methods beyond those of strings, numbers, lists and dicts.

    Raises RequestError for anything else.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if callable(dump := getattr(value, "model_dump", None)):  # a pydantic model, as the OpenAI client returns them
        return plain(dump())
    for exact in (str, int, float):
        if isinstance(value, exact):
            return exact(value)
    raise RequestError(f"a chat template cannot be given a {type(value).__name__}", "pass strings, numbers, lists and objects")
