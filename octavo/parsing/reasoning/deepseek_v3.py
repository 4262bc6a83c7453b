"""<think>...</think>, only where the prompt opens it: DeepSeek V3.1 and later."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(opens=("<think>",), closes=("</think>",), tokens=("<think>", "</think>"), strips="")

ORIGIN = Origin(
    models="DeepSeek V3.1 and V3.2",
    sources=("chat template of deepseek-ai/DeepSeek-V3.1", "encoding code of deepseek-ai/DeepSeek-V3.2"),
    templates=(("<｜Assistant｜>", "set thinking", "<think>"),),
    without=("DSML｜tool_calls", "tool_calls>"),
    model_types=("deepseek_v32",),
)
