"""Calls as a JSON array after the word functools; nothing closes it."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Objects

FORMAT = ToolFormat(call=("functools", Objects()), markers=("functools[",), strips_before=" \n")
ORIGIN = Origin(
    models="Phi-4-mini, Firefunction 2",
    sources=("vLLM's template for Phi-4-mini", "chat template of fireworks-ai/llama-3-firefunction-v2"),
    templates=(("functools[",), ("<|tool|>", "<|/tool|>")),
    model_types=("phi4mini",),
)
