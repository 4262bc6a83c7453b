"""Code renderers: conversations become prompts by a file of octavo/text/renderers. What they stumble over is the request's error."""

from collections.abc import Mapping, Sequence
from typing import Any

from octavo import plugins
from octavo.errors import OctavoError, RequestError
from octavo.text import conversation as conversations
from octavo.text import final_message
from octavo.text.rendered import Controls, Rendered, without_marks


def render(name: str, messages: Sequence[Mapping[str, Any]], *, controls: Controls | None = None, **given: Any) -> Rendered:
    """The conversation as text, by the renderer `name`; arguments as of conversation.prepare. Raises RequestError."""
    renderer = plugins.load("text.renderers", name)
    conversation = conversations.prepare(messages, renderer.CONTENT_FORMAT, controls=controls, **given)
    for tool in conversation.tools or []:
        conversations.function_of(tool)
    try:
        text = renderer.render(conversation)
    except OctavoError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as fault:  # shapes that no check has foreseen
        what = without_marks(f"{type(fault).__name__}: {fault}")
        raise RequestError(f"the conversation cannot be rendered: {what}", parameter="messages") from fault
    return Rendered(final_message.cut_final(text) if conversation.continue_final_message else text, controls)
