"""<think>...</think>: GLM 4.5 and 4.6, which open it themselves."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(opens=("<think>",), closes=("</think>",), tokens=("<think>", "</think>"))

ORIGIN = Origin(
    models="GLM 4.5 and 4.6, Ling 3, Laguna XS",
    sources=("chat template of zai-org/GLM-4.5", "chat template of zai-org/GLM-4.6"),
    templates=(("<think>", "</arg_key>\n<arg_value>"), ("<think>", "</arg_key>\\n<arg_value>")),
)
