"""DeepSeek V4.1: DSML, the section named calls, a blank after the token."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools.deepseek_v32 import dsml

FORMAT = dsml("calls", space=" ")

ORIGIN = Origin(
    models="DeepSeek V4.1",
    sources=("encoding code of deepseek-ai/DeepSeek-V4.1",),
    model_types=("deepseek_v41",),
)
