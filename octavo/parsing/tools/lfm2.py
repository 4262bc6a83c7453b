"""Calls as a Python list between <|tool_call_start|> and <|tool_call_end|>."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import PythonCalls

FORMAT = ToolFormat(
    call=("<|tool_call_start|>", PythonCalls(), "<|tool_call_end|>"),
    tokens=("<|tool_call_start|>", "<|tool_call_end|>"),
    strips_before="\n",
)
ORIGIN = Origin(
    models="LFM2 and LFM2.5",
    sources=("chat template of LiquidAI/LFM2.5-8B-A1B",),
    templates=(("<|tool_call_start|>",), ("<|tool_list_start|>",)),
    model_types=("lfm2", "lfm2_moe"),
)
