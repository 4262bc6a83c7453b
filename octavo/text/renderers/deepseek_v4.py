"""DeepSeek-V4: it thinks unless it is told not to, and how hard is a paragraph at the beginning."""

from typing import Any

from octavo.text.conversation import Conversation
from octavo.text.renderers._deepseek_turns import Dialect, Writer, thinking
from octavo.text.renderers._dsml import Tags

CONTENT_FORMAT = "paragraphs"
_DIALECT = Dialect(Tags("tool_calls", "invoke", "parameter"), has_system=False)
_OPENINGS = {
    "low": "",
    "high": """Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing \
your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected \
hypothesis to ensure absolutely no assumption is left unchecked.

""",
    "max": """Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most \
fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains \
unchecked and no error remains undiscovered.

""",
}
_EFFORTS = {"max": "max", "low": "low", "minimal": "low", "medium": "low"}


def render(conversation: Conversation) -> str:
    effort: Any = conversation.variables.get("reasoning_effort")
    thinks = thinking(conversation.variables) and effort != "none"
    return Writer(_DIALECT, conversation, thinks, _OPENINGS[_EFFORTS.get(effort, "high") if isinstance(effort, str) else "high"]).text()
