"""<think>...</think>, opened by the prompt, then the content, perhaps between <response> and </response>."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<think>",),
    closes=("</think>",),
    tokens=("<think>", "</think>", "<response>", "</response>"),
    starts_open=True,
    wraps=("<response>", "</response>"),
)
ORIGIN = Origin(
    models="ERNIE 4.5 Thinking",
    sources=("tests of PaddlePaddle/FastDeploy, by the model's makers",),
    templates=(("<think>", "<response>"),),
    without=("<|start_of_role|>", "]~b]"),
)
