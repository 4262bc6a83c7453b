"""<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>: GLM 4.5 and 4.6, with newlines between the markers."""

from octavo.parsing.entries import Entries
from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Name

FORMAT = ToolFormat(
    call=(
        "<tool_call>",
        Name(),
        Entries(open="<arg_key>", key_end="</arg_key>", value_open="<arg_value>", close="</arg_value>", end="</tool_call>"),
    ),
    tokens=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    strips_before=" \t\r\n",
)

ORIGIN = Origin(
    models="GLM 4.5 and 4.6",
    sources=("chat template of zai-org/GLM-4.5", "chat template of zai-org/GLM-4.6"),
    templates=(("<arg_key>", "</arg_key>\n<arg_value>"), ("<arg_key>", "</arg_key>\\n<arg_value>")),
)
