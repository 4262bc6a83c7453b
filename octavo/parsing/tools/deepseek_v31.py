"""DeepSeek V3.1: a section of calls, each a name and bare JSON."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Arguments, Name
from octavo.parsing.tools.deepseek_v3 import TOKENS

FORMAT = ToolFormat(
    open="<｜tool▁calls▁begin｜>",
    call=("<｜tool▁call▁begin｜>", Name(), "<｜tool▁sep｜>", Arguments(), "<｜tool▁call▁end｜>"),
    close="<｜tool▁calls▁end｜>",
    tokens=TOKENS,
    skips_noise=True,
)

ORIGIN = Origin(
    models="DeepSeek V3.1 and V3.1-Terminus",
    sources=("chat template of deepseek-ai/DeepSeek-V3.1",),
    templates=(("<｜tool▁call▁begin｜>",),),
    without=("```json",),
)
