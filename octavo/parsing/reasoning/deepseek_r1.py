"""<think>...</think>; the answer begins inside the thought, whether or not the prompt opened it."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<think>",),
    closes=("</think>",),
    tokens=("<think>", "</think>"),
    strips="\n",
    starts_open=True,
)
ORIGIN = Origin(
    models="DeepSeek R1 and its distillations, QwQ with an old template",
    sources=("chat template of deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "chat template of deepseek-ai/DeepSeek-R1-Distill-Llama-8B"),
    templates=(("<｜Assistant｜><think>",),),
    without=("DSML", "set thinking"),
)
