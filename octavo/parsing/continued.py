"""A message that an answer goes on with: whether a thought is open at its end."""

from octavo import plugins
from octavo.parsing.formats import ReasoningFormat


def prompt_end(reasoning_format: str | None, message: str, prompt: str) -> str:
    """The prompt's end as open_parser wants it: the marker that opened a thought which the message left open, else the end itself."""
    thoughts = plugins.load("parsing.reasoning", reasoning_format).FORMAT if reasoning_format else None
    if isinstance(thoughts, ReasoningFormat):
        opened = max((message.rfind(word), word) for word in thoughts.opens)
        closed = max(message.rfind(word) for word in thoughts.closes)
        if opened[0] > closed:
            return opened[1]
    return prompt
