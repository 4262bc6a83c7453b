"""<think>...</think>: Kimi K2 Thinking and later."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(opens=("<think>",), closes=("</think>",), tokens=("<think>", "</think>"), strips="")

ORIGIN = Origin(
    models="Kimi K2 Thinking, K2.5 and K2.6",
    sources=("chat template of moonshotai/Kimi-K2-Thinking", "chat template of moonshotai/Kimi-K2.6"),
    templates=(("<|im_assistant|>", "<think>"),),
)
