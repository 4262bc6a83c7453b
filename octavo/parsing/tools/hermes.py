"""<tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes 2 and 3, Qwen2.5, Qwen3."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Object

FORMAT = ToolFormat(
    call=("<tool_call>", Object(), "</tool_call>"),
    tokens=("<tool_call>", "</tool_call>"),
    strips_before=" \t\r\n",
)

ORIGIN = Origin(
    models="Hermes 2 Pro and 3, Qwen2.5, Qwen3, QwQ, MiMo-VL, Bielik, Reka Edge",
    sources=(
        "chat template of NousResearch/Hermes-3-Llama-3.1-8B",
        "chat template of Qwen/Qwen2.5-7B-Instruct",
        "chat template of Qwen/Qwen3-0.6B",
    ),
    templates=(("<tool_call>", "arguments"),),
    without=("<arg_key>", "<function=", "<|start_of_role|>", "]<]minimax[>[", "<tool_calls>", "<|end_of_sentence|>"),
)
