"""DeepSeek V3 (0324) and R1 (0528): a section of calls, each a name and a fenced JSON block."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Arguments, Name

TOKENS = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>")

FORMAT = ToolFormat(
    open="<｜tool▁calls▁begin｜>",
    call=("<｜tool▁call▁begin｜>", "function", "<｜tool▁sep｜>", Name(), "```json", Arguments(), "```", "<｜tool▁call▁end｜>"),
    close="<｜tool▁calls▁end｜>",
    tokens=TOKENS,
    skips_noise=True,
)

ORIGIN = Origin(
    models="DeepSeek V3, V3-0324, R1, R1-0528 and the R1 distillations",
    sources=("chat template of deepseek-ai/DeepSeek-V3-0324", "chat template of deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"),
    templates=(("<｜tool▁call▁begin｜>", "```json"),),
)
