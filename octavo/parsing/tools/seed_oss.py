"""Each call as <function=NAME> with <parameter=KEY>VALUE</parameter> lines, between <seed:tool_call> and </seed:tool_call>."""

from octavo.parsing.entries import Entries
from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Name

FORMAT = ToolFormat(
    open="<seed:tool_call>",
    call=("<function=", Name(until=">"), Entries(open="<parameter=", key_end=">", close="</parameter>", end="</function>")),
    close="</seed:tool_call>",
    tokens=("<seed:tool_call>", "</seed:tool_call>"),
    strips_before="\n",
)
ORIGIN = Origin(
    models="Seed-OSS",
    sources=("chat template of ByteDance-Seed/Seed-OSS-36B-Instruct",),
    templates=(("<seed:tool_call>",),),
    model_types=("seed_oss",),
)
