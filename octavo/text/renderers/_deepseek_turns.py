"""Turns of DeepSeek-V4 and V4.1: results of tools are part of what the user says, in the order of the calls."""

from dataclasses import dataclass, field
from typing import Any

from octavo.text.conversation import Conversation
from octavo.text.renderers import _dsml as dsml
from octavo.text.renderers._dsml import ASSISTANT, BOS, END_THINK, EOS, REMINDER, SYSTEM, THINK, USER, Tags

_TOOLS = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "{block}" block like the following:

{block}
{call}
{parameter}
...
{end_call}
{call2}
...
{end_call}
{end_block}

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the \
value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool \
calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"""
_TOOLS_END = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between versions. has_system: a system message has a token of its own, and a later one is answered as a user's is."""

    tags: Tags
    has_system: bool

    def instructions(self) -> str:
        tags = self.tags
        return _TOOLS.format(
            block=tags.open(tags.block),
            call=tags.open(tags.call, name="$TOOL_NAME"),
            call2=tags.open(tags.call, name="$TOOL_NAME2"),
            parameter=tags.example(),
            end_call=tags.close(tags.call),
            end_block=tags.close(tags.block),
        )


@dataclass(slots=True)
class Turn:
    """A message, or what the user says and tools answer together. parts: (id of a call or None, text)."""

    role: str
    message: dict[str, Any]
    parts: list[tuple[str | None, str]] = field(default_factory=list)

    @property
    def task(self) -> Any:
        return self.message.get("task")

    @property
    def content(self) -> str:
        if self.role != "user":
            return str(self.message["content"])
        return "\n\n".join(text if call is None else f"<tool_result>{text}</tool_result>" for call, text in self.parts)


def turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """The messages, those of users and tools that follow each other as one."""
    result: list[Turn] = []
    order: dict[str, int] = {}
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "assistant" and message.get("tool_calls"):
            order = {call["id"]: place for place, call in enumerate(message["tool_calls"]) if call.get("id")}
        joins = bool(result) and result[-1].role == "user" and (role == "tool" or (role == "user" and result[-1].task is None))
        if role not in ("user", "tool"):
            result.append(Turn(role, message))
            continue
        if not joins:
            result.append(Turn("user", message if role == "user" else {"role": "user", "content": ""}))
        result[-1].parts.append((message.get("tool_call_id", "") if role == "tool" else None, content))
        if role == "tool":
            _sort_results(result[-1], order)
    return result


def _sort_results(turn: Turn, order: dict[str, int]) -> None:
    """Put the results into the order of the calls; the user's own words keep their places."""
    results = iter(sorted((part for part in turn.parts if part[0] is not None), key=lambda part: order.get(part[0] or "", 0)))
    turn.parts = [part if part[0] is None else next(results) for part in turn.parts]


class Writer:
    """Writes a conversation. opening: what stands at its beginning when the model thinks."""

    def __init__(self, dialect: Dialect, conversation: Conversation, thinks: bool, opening: str) -> None:
        self.dialect = dialect
        self.conversation = conversation
        self.thinks = thinks
        self.opening = opening if thinks else ""
        messages = _with_tools(conversation)
        has_tools = any(message.get("tools") for message in messages)
        self.forgets = bool(conversation.variables.get("drop_thinking", True)) and not has_tools
        self.turns = turns(messages)
        if thinks and self.forgets:
            last = self._last_user()
            self.turns = [turn for index, turn in enumerate(self.turns) if index >= last or turn.role != "developer"]
        self.last_user = self._last_user()

    def text(self) -> str:
        return BOS + "".join(self._turn(index, turn) + self._transition(index, turn) for index, turn in enumerate(self.turns))

    def _last_user(self) -> int:
        return dsml.last_user([{"role": turn.role} for turn in self.turns], system_counts=self.dialect.has_system)

    def _turn(self, index: int, turn: Turn) -> str:
        text = self.opening if index == 0 else ""
        if self.dialect.has_system and ((index == 0 and self.opening) or turn.role == "system"):
            text = SYSTEM + text
        return text + self._body(index, turn)

    def _body(self, index: int, turn: Turn) -> str:
        match turn.role:
            case "system":
                return turn.content + self._extras(turn.message)
            case "user":
                return USER + turn.content
            case "developer":
                if not turn.content:
                    raise dsml.refuse("developer", "it has no content")
                return USER + turn.content + self._extras(turn.message)
            case "latest_reminder":
                return REMINDER + turn.content
            case "assistant":
                return self._said(index, turn)
        raise dsml.refuse(turn.role, "its format has no such role")

    def _extras(self, message: dict[str, Any]) -> str:
        tools = message.get("tools")
        text = f"\n\n{self.dialect.instructions()}{dsml.schemas(tools)}{_TOOLS_END}" if tools else ""
        return text + (dsml.response_format(message["response_format"]) if message.get("response_format") else "")

    def _said(self, index: int, turn: Turn) -> str:
        message = turn.message
        text = ""
        if self.thinks and not (index and self.turns[index - 1].task is not None) and (not self.forgets or index > self.last_user):
            text = f"{message.get('reasoning_content', '')}{END_THINK}"
        text += turn.content
        if message.get("tool_calls"):
            text += f"\n\n{self.dialect.tags.calls(message['tool_calls'])}"
        return text if message.get("wo_eos") else text + EOS

    def _transition(self, index: int, turn: Turn) -> str:
        """What stands between a turn and the answer to it."""
        follower = self.turns[index + 1].role if index + 1 < len(self.turns) else None
        if follower not in (None, "assistant", "latest_reminder"):
            return ""
        starts = THINK if self.thinks and (not self.forgets or index >= self.last_user) else END_THINK
        if turn.task is not None:
            if turn.task not in dsml.TASKS:
                raise dsml.refuse(turn.role, f"task must be one of {', '.join(dsml.TASKS)}")
            head = f"{ASSISTANT}{THINK if self.thinks else END_THINK}" if turn.task == "action" else ""
            return f"{head}<｜{turn.task}｜>"
        if follower is None and not self.conversation.add_generation_prompt:
            return ""
        if self.dialect.has_system:
            is_answered = turn.role == "system" and index > 0
        else:
            is_answered = turn.role == "system" and follower in (None, "assistant")
        return f"{ASSISTANT}{starts}" if is_answered or turn.role in ("user", "developer") else ""


def _with_tools(conversation: Conversation) -> list[dict[str, Any]]:
    """The messages, with the request's tools in the first system message, made if there is none."""
    messages = list(conversation.messages)
    if not conversation.tools:
        return messages
    index = next((index for index, message in enumerate(messages) if message["role"] == "system"), None)
    if index is None:
        index = 0
        messages.insert(0, {"role": "system", "content": ""})
    messages[index] = messages[index] | {"tools": conversation.tools}
    return messages


def thinking(variables: dict[str, Any]) -> bool:
    """Whether the model thinks: unless it is told not to."""
    told = [variables[name] for name in ("thinking", "enable_thinking") if name in variables]
    return not told or any(told)
