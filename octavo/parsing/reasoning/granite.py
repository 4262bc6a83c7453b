"""Thoughts after the words 'Here is my thought process:', content after 'Here is my response:'; 3.3 writes <think> and <response>."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<think>", "Here is my thought process:", "Here's my thought process:"),
    closes=("</think>", "Here is my response:", "Here's my response:"),
    strips=" \n",
    wraps=("<response>", "</response>"),
)
ORIGIN = Origin(
    models="Granite 3.2 and 3.3",
    sources=("chat template of ibm-granite/granite-3.2-8b-instruct", "chat template of ibm-granite/granite-3.3-2b-instruct"),
    templates=(("Here is my thought process:",), ("<|start_of_role|>", "<think>")),
    model_types=("granite",),
)
