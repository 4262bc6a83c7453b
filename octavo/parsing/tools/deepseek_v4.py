"""DeepSeek V4: DSML, the section named tool_calls."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools.deepseek_v32 import dsml

FORMAT = dsml("tool_calls")

ORIGIN = Origin(
    models="DeepSeek V4",
    sources=("encoding code of deepseek-ai/DeepSeek-V4-Flash",),
    templates=(("DSML", "tool_calls>"),),
    model_types=("deepseek_v4",),
)
