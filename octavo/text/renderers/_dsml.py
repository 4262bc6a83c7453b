"""DSML: how DeepSeek's models from V3.2 on write tool definitions and calls, and what their renderers have in common.

Source: the encoders that DeepSeek publishes with the models (encoding/ in each repository). Their instructions to the model are part of
the format: a model follows the ones that it was trained with, word for word.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import RequestError
from octavo.text.conversation import function_of

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
SYSTEM, REMINDER = "<｜System｜>", "<｜latest_reminder｜>"
THINK, END_THINK = "<think>", "</think>"
TASKS = ("action", "query", "authority", "domain", "title", "read_url")
_MARK = "｜DSML｜"


@dataclass(frozen=True, slots=True)
class Tags:
    """The names of a version's tags."""

    block: str
    call: str
    parameter: str

    def open(self, tag: str, /, **attributes: str) -> str:
        written = "".join(f' {key}="{value}"' for key, value in attributes.items())
        return f"<{_MARK}{tag}{written}>"

    def close(self, name: str) -> str:
        return f"</{_MARK}{name}>"

    def example(self) -> str:
        """A parameter, as the instructions show it."""
        return f"{self.open(self.parameter, name='$PARAMETER_NAME', string='true|false')}$PARAMETER_VALUE{self.close(self.parameter)}"

    def calls(self, tool_calls: Sequence[Any]) -> str:
        """The block of an assistant's calls."""
        texts = (self._call(function_of(call)) for call in tool_calls)
        return "\n".join([self.open(self.block), *texts, self.close(self.block)])

    def _call(self, function: dict[str, Any]) -> str:
        parameters = (
            f"{self.open(self.parameter, name=key, string='true' if isinstance(value, str) else 'false')}"
            f"{value if isinstance(value, str) else to_json(value)}{self.close(self.parameter)}"
            for key, value in arguments_of(function).items()
        )
        return f"{self.open(self.call, name=function['name'])}\n" + "\n".join(parameters) + f"\n{self.close(self.call)}"


def arguments_of(function: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by name; what is no object is the argument `arguments`, as text."""
    arguments = function.get("arguments")
    if arguments is None:
        return {}
    if isinstance(arguments, str):  # JSON within JSON
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return {"arguments": arguments}
    return arguments if isinstance(arguments, dict) else {"arguments": to_json(arguments)}


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def schemas(tools: Iterable[Any]) -> str:
    """The functions, a line each."""
    return "\n".join(to_json(function_of(tool)) for tool in tools)


def response_format(schema: Any) -> str:
    return f"\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{to_json(schema)}"


def refuse(role: Any, what: str) -> RequestError:
    return RequestError(f"the conversation cannot be rendered: {what} (role {role!r})", parameter="messages")


def last_user(messages: Sequence[dict[str, Any]], *, system_counts: bool = False) -> int:
    """The place of the last message that the model answers; -1 if there is none. system_counts: but not at the beginning."""
    answered = (
        index
        for index in range(len(messages) - 1, -1, -1)
        if messages[index]["role"] in ("user", "developer") or (system_counts and index and messages[index]["role"] == "system")
    )
    return next(answered, -1)
