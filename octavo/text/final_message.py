"""The final message left open: where its text ends is marked before rendering, and what the rendering puts behind that is cut off."""

from typing import Any

from octavo.errors import RequestError
from octavo.text.rendered import FINAL

_NAME = "continue_final_message"


def check(add_generation_prompt: bool, continue_final_message: bool) -> None:
    if add_generation_prompt and continue_final_message:
        raise RequestError(
            "add_generation_prompt and continue_final_message exclude each other", "continue the final message, or begin a new one", _NAME
        )


def open_final(messages: list[dict[str, Any]]) -> None:
    """Put the mark at the end of the final message's text. Raises RequestError if it has none."""
    final = messages[-1]
    content = final["content"]
    if isinstance(content, str):
        final["content"] = content + FINAL + " "
        return
    part = next((part for part in reversed(content) if isinstance(part.get("text"), str)), None)
    if part is None:
        raise RequestError(f"{_NAME}: the final message has no text to continue", parameter=_NAME)
    part["text"] += FINAL + " "


def cut_final(text: str) -> str:
    """The text up to the end of the final message; a template that trims messages has trimmed this one as well."""
    end = text.rfind(FINAL)
    if end < 0:
        raise RequestError(
            f"{_NAME}: the final message does not appear in the rendered chat",
            "this chat template changes or drops it; send it as part of a prompt instead",
            _NAME,
        )
    return text[:end] if text[end + 1 : end + 2] == " " else text[:end].rstrip()
