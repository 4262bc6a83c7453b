"""<think>...</think>: GLM 4.5 and 4.6, which open it themselves."""

from octavo.parsing.formats import ReasoningFormat

FORMAT = ReasoningFormat(opens=("<think>",), closes=("</think>",), tokens=("<think>", "</think>"))
