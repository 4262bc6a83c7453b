"""The thought channel of Gemma 4."""

from octavo.parsing.formats import ReasoningFormat

FORMAT = ReasoningFormat(opens=("<|channel>thought",), closes=("<channel|>",), tokens=("<|channel>", "<channel|>"))
