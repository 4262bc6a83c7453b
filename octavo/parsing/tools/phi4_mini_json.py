"""Calls as a JSON array, between <|tool_call|> and <|/tool_call|> or after the word functools, where nothing closes it."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Maybe, Objects, OneOf

FORMAT = ToolFormat(
    call=(OneOf((("<|tool_call|>", Objects(), Maybe(("<|/tool_call|>",))), ("functools", Objects()))),),
    markers=("<|tool_call|>", "functools["),
    tokens=("<|tool_call|>", "<|/tool_call|>"),
    strips_before=" \n",
)
ORIGIN = Origin(
    models="Phi-4-mini, Firefunction 2",
    sources=(
        "chat template of phi4-mini in Ollama's library",
        "vLLM's template for Phi-4-mini",
        "chat template of fireworks-ai/llama-3-firefunction-v2",
    ),
    templates=(("functools[",), ("<|tool|>", "<|/tool|>")),
    model_types=("phi4mini",),
)
