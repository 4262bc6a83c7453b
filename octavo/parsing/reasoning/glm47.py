"""The format of glm45: <think>...</think>, opened by the prompt."""

from octavo.parsing.origin import Origin
from octavo.parsing.reasoning import glm45

FORMAT = glm45.FORMAT
ORIGIN = Origin(
    models="GLM 4.7 and 5.x, Laguna S, Spark 2.5",
    sources=("chat template of zai-org/GLM-4.7", "chat template of zai-org/GLM-5.3"),
    templates=(("<think>", "<arg_key>"),),
    without=("</arg_key>\n<arg_value>", "</arg_key>\\n<arg_value>"),
)
