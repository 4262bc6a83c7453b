"""<think>...</think>, only where the prompt opens it: DeepSeek V3.1 and later."""

from octavo.parsing.formats import ReasoningFormat

FORMAT = ReasoningFormat(opens=("<think>",), closes=("</think>",), tokens=("<think>", "</think>"), strips="")
