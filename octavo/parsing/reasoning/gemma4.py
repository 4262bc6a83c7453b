"""The thought channel of Gemma 4."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(opens=("<|channel>thought",), closes=("<channel|>",), tokens=("<|channel>", "<channel|>"))

ORIGIN = Origin(
    models="Gemma 4",
    sources=("chat template of google/gemma-4-31B-it",),
    templates=(("<|channel>thought",), ("<|channel>", "thought")),
)
