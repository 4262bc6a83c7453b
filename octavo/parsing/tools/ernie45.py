"""Each call as a JSON object between <tool_call> and </tool_call>, as hermes."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools.hermes import FORMAT as FORMAT

ORIGIN = Origin(
    models="ERNIE 4.5 Thinking",
    sources=("tests of PaddlePaddle/FastDeploy, by the model's makers",),
    model_types=("ernie4_5_moe", "ernie4_5"),
)
