"""[THINK]...[/THINK]: Magistral and Ministral; the first Magistral writes <think>...</think>."""

from octavo.parsing.formats import ReasoningFormat

FORMAT = ReasoningFormat(
    opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>"), tokens=("[THINK]", "[/THINK]"), strips="", hides_calls=True
)
