"""[THINK]...[/THINK]: Magistral and Ministral; the first Magistral writes <think>...</think>."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>"), tokens=("[THINK]", "[/THINK]"), strips="", hides_calls=True
)

ORIGIN = Origin(
    models="Magistral, Ministral 3 Reasoning, Mistral Small 4",
    sources=("mistral-common", "chat template of mistralai/Ministral-3-14B-Reasoning-2512"),
    templates=(("[THINK]",), ("[TOOL_CALLS]", "<think>")),
)
