"""The format of deepseek_v3: <think>...</think>."""

from octavo.parsing.origin import Origin
from octavo.parsing.reasoning import deepseek_v3

FORMAT = deepseek_v3.FORMAT
ORIGIN = Origin(
    models="DeepSeek V4",
    sources=("encoding code of deepseek-ai/DeepSeek-V4-Flash",),
    templates=(("DSML", "tool_calls>", "<think>"),),
    model_types=("deepseek_v4",),
)
