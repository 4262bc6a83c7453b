"""<think>...</think>, opened by the prompt and left in the content, markers and all."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<think>",),
    closes=("</think>",),
    tokens=("<think>", "</think>"),
    strips="",
    starts_open=True,
    shows_all=True,
)
ORIGIN = Origin(
    models="as minimax_m2, for clients that want the thought in the content",
    sources=("vLLM's name for it",),
)
