"""Calls as <invoke name="NAME"> with <parameter name="KEY"> elements, between <minimax:tool_call> and </minimax:tool_call>."""

from octavo.parsing.entries import Entries
from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Name

FORMAT = ToolFormat(
    open="<minimax:tool_call>",
    call=('<invoke name="', Name(until='">'), Entries(open='<parameter name="', key_end='">', close="</parameter>", end="</invoke>")),
    close="</minimax:tool_call>",
    tokens=("<minimax:tool_call>", "</minimax:tool_call>"),
    strips_before="\n",
)
ORIGIN = Origin(
    models="MiniMax M2, M2.1 and M2.5",
    sources=("chat template of MiniMaxAI/MiniMax-M2",),
    templates=(("<minimax:tool_call>",),),
    model_types=("minimax_m2",),
)
