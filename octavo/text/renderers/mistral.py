"""Mistral's format with tekken.json, in the version that the file names: 3, 7, 11, 13 or 15.

Source: mistral-common. What differs by version is said by the properties of Version, and nowhere else.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from octavo.errors import RequestError
from octavo.text.conversation import Conversation, function_of
from octavo.text.rendered import FINAL

CONTENT_FORMAT = "as_given"
_ANY_JSON = {"anyOf": [{"type": "object"}, {"type": "array"}]}


@dataclass(frozen=True, slots=True)
class Version:
    """number: of the format. thinks: thoughts have tokens. settings: how hard the model thinks and what it answers in, if told."""

    number: int
    thinks: bool
    settings: dict[str, Any] | None

    has_system = property(lambda self: self.number >= 7)  # messages of its own; before, it is part of the last user's
    calls_apart = property(lambda self: self.number >= 11)  # a token before each call; before, one list
    tells_ids = property(lambda self: self.number < 13)  # of calls, with them and with their results
    tools_first = property(lambda self: self.number >= 13)  # in the first user's message; before, in the last
    joint = property(lambda self: "" if self.number >= 15 else "\n\n")  # of parts of one message


@dataclass(slots=True)
class Turn:
    """Messages of one role in a row. texts: (text, whether it is thought)."""

    role: str
    messages: list[dict[str, Any]]

    def texts(self, version: Version) -> list[tuple[str, bool]]:
        """What they say; neighbouring texts are one."""
        result: list[tuple[str, bool]] = []
        for message in self.messages:
            joint = "\n\n"
            for text, is_thought in _parts(message):
                if is_thought and not version.thinks:
                    continue
                if result and not is_thought and not result[-1][1]:
                    result[-1] = (result[-1][0] + joint + text, False)
                else:
                    result.append((text, is_thought))
                joint = version.joint
        return result

    def content(self, version: Version) -> str:
        return "".join(text for text, is_thought in self.texts(version) if not is_thought)

    @property
    def calls(self) -> list[Any]:
        return [call for message in self.messages for call in message.get("tool_calls") or []]


def render(conversation: Conversation) -> str:
    facts = conversation.format_facts
    version = Version(int(str(facts.get("version", "v3")).removeprefix("v")), bool(facts.get("thinks")), facts.get("settings"))
    turns = _turns(conversation.messages, version)
    users = [index for index, turn in enumerate(turns) if turn.role == "user"]
    told = users and users[0 if version.tools_first else -1]
    system = "\n\n".join(filter(None, (_text(message) for message in conversation.messages if _is_system(message))))
    parts = ["<s>"]
    for index, turn in enumerate(turns):
        match turn.role:
            case "system":
                parts.extend(f"[SYSTEM_PROMPT]{_written(Turn('system', [m]).texts(version))}[/SYSTEM_PROMPT]" for m in turn.messages)
            case "user":
                content = turn.content(version)
                if system and not version.has_system and index == users[-1]:
                    content = f"{system}\n\n{content}"
                parts.append(f"{_head(conversation, version) if index == told else ''}[INST]{content}[/INST]")
            case "assistant":
                parts.append(_said(turn, version))
            case "tool":
                parts.extend(_result(message, version) for message in _in_order(turn, turns[:index], version))
    return "".join(parts)


def _is_system(message: dict[str, Any]) -> bool:
    return message["role"] in ("system", "developer")


def _turns(messages: list[dict[str, Any]], version: Version) -> list[Turn]:
    kept = [message for message in messages if version.has_system or not _is_system(message)]
    turns = [Turn(role, list(run)) for role, run in groupby(kept, key=lambda m: "system" if _is_system(m) else str(m["role"]))]
    for turn in turns:
        if turn.role not in ("system", "user", "assistant", "tool"):
            raise RequestError(f"this model's format has no role {turn.role!r}", "use system, user, assistant or tool", "messages")
    if not turns or (not version.has_system and turns[0].role != "user"):
        turns.insert(0, Turn("user", [{"role": "user", "content": ""}]))
    return turns


def _parts(message: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """What a message says, thoughts marked; nothing that is empty."""
    if message.get("reasoning_content") and message["role"] == "assistant":
        yield message["reasoning_content"], True
    content = message["content"]
    for part in [{"text": content}] if isinstance(content, str) else content:
        if not isinstance(part.get("text"), str):
            raise RequestError(f"a part of type {part.get('type')!r} cannot be rendered", "send text", "messages")
        if part["text"]:
            yield part["text"], "thinking" in part


def _text(message: dict[str, Any]) -> str:
    return "\n\n".join(text for text, is_thought in _parts(message) if not is_thought)


def _written(texts: list[tuple[str, bool]]) -> str:
    return "".join(f"[THINK]{text}[/THINK]" if is_thought else text for text, is_thought in texts)


def _head(conversation: Conversation, version: Version) -> str:
    """Tools and settings, before the user's message that they go with."""
    text = ""
    if conversation.tools:
        text = f"[AVAILABLE_TOOLS]{_json([_declared(function_of(tool)) for tool in conversation.tools])}[/AVAILABLE_TOOLS]"
    if version.settings is not None and (settings := _settings(conversation, version.settings)):
        text += f"[MODEL_SETTINGS]{_json(settings)}[/MODEL_SETTINGS]"
    return text


def _declared(function: dict[str, Any]) -> dict[str, Any]:
    names = ("name", "description", "parameters")
    given = {"description": "", "parameters": {}} | {name: function[name] for name in names if function.get(name) is not None}
    return {"type": "function", "function": {name: given[name] for name in names}}


def _settings(conversation: Conversation, known: dict[str, Any]) -> dict[str, Any]:
    """What the model can be told, of what the request says. Raises RequestError for an effort that it does not know."""
    result = {}
    wanted = conversation.response_format
    if known.get("json_schema") and isinstance(wanted, dict) and wanted.get("type") in ("json_object", "json_schema"):
        result["json_schema"] = wanted["json_schema"]["schema"] if wanted["type"] == "json_schema" else _ANY_JSON
    effort = conversation.variables.get("reasoning_effort")
    if (efforts := known.get("reasoning_effort")) is not None:
        effort = efforts.get("default") if effort is None else effort
        if effort not in efforts["values"]:
            raise RequestError(
                f"reasoning_effort {effort!r} is not one that this model knows", f"send {', '.join(efforts['values'])}", "reasoning_effort"
            )
        result["reasoning_effort"] = effort
    return result


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _said(turn: Turn, version: Version) -> str:
    texts, calls = turn.texts(version), turn.calls
    if not texts and not calls:
        raise RequestError("an assistant's message must have content or tool_calls", parameter="messages")
    if texts and calls and not version.has_system:
        raise RequestError("in this model's format an assistant's message has content or tool_calls, not both", parameter="messages")
    if len(texts) == 1 and not texts[0][1]:
        texts = [(_without_spaces(texts[0][0]), False)]
    return f"{_written(texts)}{_called(calls, version)}</s>"


def _without_spaces(text: str) -> str:
    """A text without the spaces at its end; the mark of a final message stays behind it."""
    text, mark, after = text.partition(FINAL)
    return text.rstrip(" ") + mark + after


def _called(calls: list[Any], version: Version) -> str:
    if not calls:
        return ""
    if not version.calls_apart:
        return f"[TOOL_CALLS]{_json([_call(call) for call in calls])}"
    return "".join(_call_apart(_call(call), version) for call in calls)


def _call(call: Any) -> dict[str, Any]:
    function = function_of(call)
    arguments = function.get("arguments")
    named = {"name": function["name"], "arguments": {} if arguments in (None, "") else arguments}
    return named | ({"id": _short(call["id"])} if call.get("id") not in (None, "", "null") else {})


def _call_apart(call: dict[str, Any], version: Version) -> str:
    told = f"[CALL_ID]{call['id']}" if version.tells_ids and "id" in call else ""
    return f"[TOOL_CALLS]{call['name']}{told}[ARGS]{_json(call['arguments'])}"


def _short(call_id: str) -> str:
    """The model knows ids of nine letters and digits: the last nine of a longer one."""
    return call_id[-9:]


def _in_order(turn: Turn, before: list[Turn], version: Version) -> list[dict[str, Any]]:
    """Results of tools; from version 11 on in the order of the calls."""
    if not version.calls_apart:
        return turn.messages
    calls = before[-1].calls if before and before[-1].role == "assistant" else []
    places = {call.get("id"): place for place, call in enumerate(calls)}
    return sorted(turn.messages, key=lambda message: places.get(message.get("tool_call_id"), len(places)))


def _result(message: dict[str, Any], version: Version) -> str:
    content, call_id = _content_of_result(message, version), _short(message.get("tool_call_id") or "")
    if not version.tells_ids:
        return f"[TOOL_RESULTS]{content}[/TOOL_RESULTS]"
    if not call_id:
        raise RequestError("a tool's message must have a tool_call_id", parameter="messages")
    if version.has_system:
        return f"[TOOL_RESULTS]{call_id}[TOOL_CONTENT]{content}[/TOOL_RESULTS]"
    return f"[TOOL_RESULTS]{_json({'content': _as_json(content), 'call_id': call_id})}[/TOOL_RESULTS]"


def _content_of_result(message: dict[str, Any], version: Version) -> str:
    return Turn("tool", [message]).content(version)


def _as_json(text: str) -> Any:
    """A result that is JSON as what it is; an empty one is an empty object."""
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return text
