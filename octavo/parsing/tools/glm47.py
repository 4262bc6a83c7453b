"""GLM 4.7 and 5: the format of GLM 4.5, without newlines between its markers."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools import glm45

FORMAT = glm45.FORMAT
ORIGIN = Origin(
    models="GLM 4.7 and 5.x, Laguna S, Spark 2.5",
    sources=("chat template of zai-org/GLM-4.7", "chat template of zai-org/GLM-5.3"),
    templates=(("<arg_key>",),),
    without=("</arg_key>\n<arg_value>", "</arg_key>\\n<arg_value>"),
)
