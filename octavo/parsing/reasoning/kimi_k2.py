"""<think>...</think>: Kimi K2 Thinking and later."""

from octavo.parsing.formats import ReasoningFormat

FORMAT = ReasoningFormat(opens=("<think>",), closes=("</think>",), tokens=("<think>", "</think>"), strips="")
