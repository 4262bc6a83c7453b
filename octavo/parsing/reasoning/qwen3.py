"""<think>...</think>, which Qwen3 opens itself or finds opened by the prompt."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(opens=("<think>",), closes=("</think>",), tokens=("<think>", "</think>"))

ORIGIN = Origin(
    models="Qwen3 and later, QwQ, Nemotron 3, Step 3.5, LFM2.5, MiniCPM5, SmolLM3, and others that write <think> themselves",
    sources=("chat template of Qwen/Qwen3-0.6B", "chat template of Qwen/Qwen3.5-9B"),
    templates=(("<think>",),),
    without=(
        "<｜Assistant｜>",
        "[gMASK]",
        "<|im_assistant|>",
        "]~b]",
        "<arg_key>",
        "<|start_of_role|>",
        "<|open|>",
        "[TOOL_CALLS]",
        "<functions>",
        "<|extra_0|>",
        "steptml:",
        "<answer>",
        "<response>",
    ),
)
