"""<think>...</think>, which Qwen3 opens itself or finds opened by the prompt."""

from octavo.parsing.formats import ReasoningFormat

FORMAT = ReasoningFormat(opens=("<think>",), closes=("</think>",), tokens=("<think>", "</think>"))
