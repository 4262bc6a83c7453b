"""DeepSeek-V3.2: tool results stand by themselves, thoughts of earlier turns are left away, and thinking is off unless it is asked for."""

from typing import Any

from octavo.text.conversation import Conversation
from octavo.text.renderers import _dsml as dsml
from octavo.text.renderers._dsml import ASSISTANT, BOS, END_THINK, EOS, THINK, USER, Tags

CONTENT_FORMAT = "string"
TAGS = Tags("function_calls", "invoke", "parameter")
_TOOLS = f"""## Tools
You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "{TAGS.open(TAGS.block)}" block like the following as part of your reply to the user:
{TAGS.open(TAGS.block)}
{TAGS.open(TAGS.call, name="$FUNCTION_NAME")}
{TAGS.example()}
...
{TAGS.close(TAGS.call)}
{TAGS.open(TAGS.call, name="$FUNCTION_NAME2")}
...
{TAGS.close(TAGS.call)}
{TAGS.close(TAGS.block)}
String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. \
The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).
If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:
{TAGS.open(TAGS.block)}
...
{TAGS.close(TAGS.block)}
<function_results>
...
</function_results>
{THINK}...thinking about results{END_THINK}
Here are the functions available in JSONSchema format:
<functions>
"""


def render(conversation: Conversation) -> str:
    variables = conversation.variables
    thinks = bool(variables.get("thinking") or variables.get("enable_thinking"))
    messages = list(conversation.messages)
    if conversation.tools:
        messages.insert(0, {"role": "system", "content": "", "tools": conversation.tools})
    if thinks and messages[-1]["role"] == "user":
        messages = _forget(messages)
    return BOS + "".join(_Turn(conversation, messages, thinks).text(index) for index in range(len(messages)))


def _forget(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What stays of a conversation when the user speaks again: nothing of thoughts, and no earlier developer's message."""
    last = dsml.last_user(messages)
    early = ({key: value for key, value in m.items() if key != "reasoning_content"} for m in messages[:last] if m["role"] != "developer")
    return [*early, *messages[last:]] if last >= 0 else messages


class _Turn:
    def __init__(self, conversation: Conversation, messages: list[dict[str, Any]], thinks: bool) -> None:
        self.conversation = conversation
        self.messages = messages
        self.thinks = thinks
        self.last_user = dsml.last_user(messages)

    def text(self, index: int) -> str:
        message = self.messages[index]
        match message["role"]:
            case "system":
                return str(message["content"]) + self._extras(message)
            case "user":
                return self._asked(index, message["content"])
            case "developer":
                if not message["content"]:
                    raise dsml.refuse("developer", "it has no content")
                return self._asked(index, f"{self._extras(message)}\n\n# The user's message is: {message['content']}")
            case "tool":
                return self._result(index, message)
            case "assistant":
                return self._said(index, message)
            case role:
                raise dsml.refuse(role, "its format has no such role")

    def _extras(self, message: dict[str, Any]) -> str:
        tools = f"\n\n{_TOOLS}{dsml.schemas(message['tools'])}\n</functions>\n" if message.get("tools") else ""
        return tools + (dsml.response_format(message["response_format"]) if message.get("response_format") else "")

    def _is_open(self, index: int) -> bool:
        """Whether message `index` is answered: by the next one, or by the model if it is to begin."""
        return index < len(self.messages) - 1 or self.conversation.add_generation_prompt

    def _asked(self, index: int, content: str) -> str:
        if not self._is_open(index):
            return f"{USER}{content}"
        return f"{USER}{content}{ASSISTANT}{THINK if self.thinks and index == self.last_user else END_THINK}"

    def _result(self, index: int, message: dict[str, Any]) -> str:
        before = index - 1
        while before >= 0 and self.messages[before]["role"] == "tool":
            before -= 1
        calls = self.messages[before].get("tool_calls") if before >= 0 and self.messages[before]["role"] == "assistant" else None
        order = index - before
        if not calls or len(calls) < order:
            raise dsml.refuse("tool", "it answers no call of an assistant's message before it")
        text = f"\n<result>{message['content']}</result>"
        if order == 1:
            text = f"\n\n<function_results>{text}"
        if order < len(calls):
            return text
        text += "\n</function_results>"
        if not self._is_open(index):
            return text
        return f"{text}\n\n{THINK if self.thinks and index >= self.last_user else END_THINK}"

    def _said(self, index: int, message: dict[str, Any]) -> str:
        reasoning, calls = message.get("reasoning_content"), message.get("tool_calls")
        thought = ""
        if self.thinks and index > self.last_user:
            if not (reasoning or calls or self.conversation.continue_final_message):
                raise dsml.refuse("assistant", "when it thinks, a message behind the last user's has reasoning_content or tool_calls")
            thought = f"{reasoning or ''}{END_THINK}"
        called = f"\n\n{TAGS.calls(calls)}" if calls else ""
        return f"{thought}{message['content']}{called}{EOS}"
