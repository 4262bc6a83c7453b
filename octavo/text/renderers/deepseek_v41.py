"""DeepSeek-V4.1: system messages have a token of their own, and how hard the model thinks is a number from 1 to 100."""

from typing import Any

from octavo.errors import RequestError
from octavo.text.conversation import Conversation
from octavo.text.renderers._deepseek_turns import Dialect, Writer, thinking
from octavo.text.renderers._dsml import Tags

CONTENT_FORMAT = "paragraphs"
_DIALECT = Dialect(Tags(" calls", " invoke", " parameter"), has_system=True)
_EFFORTS = {"low": 50, "high": 75, "xhigh": 75, "max": 100}


def render(conversation: Conversation) -> str:
    effort = conversation.variables.get("reasoning_effort")
    thinks = thinking(conversation.variables) and effort != "none"
    budget = _budget(effort)
    opening = f"Reasoning Effort: {budget} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
    return Writer(_DIALECT, conversation, thinks, opening).text()


def _budget(effort: Any) -> int:
    if effort is None or effort == "none":
        return _EFFORTS["high"]
    if isinstance(effort, str) and effort in _EFFORTS:
        return _EFFORTS[effort]
    if type(effort) is int and 1 <= effort <= 100:
        return effort
    raise RequestError(
        f"reasoning_effort {effort!r} is not one that this model knows",
        f"send none, {', '.join(_EFFORTS)}, or in chat_template_kwargs a number from 1 to 100",
        "reasoning_effort",
    )
