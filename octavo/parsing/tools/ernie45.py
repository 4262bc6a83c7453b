"""The format of hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools import hermes

FORMAT = hermes.FORMAT
ORIGIN = Origin(
    models="ERNIE 4.5 Thinking",
    sources=("tests of PaddlePaddle/FastDeploy, by the model's makers",),
    model_types=("ernie4_5_moe", "ernie4_5"),
)
