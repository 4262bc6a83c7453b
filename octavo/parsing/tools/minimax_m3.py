"""Calls as <invoke name="NAME"> with an element per argument, nested as the value is; each tag has the token ]<]minimax[>[ before it."""

from octavo.parsing.elements import Elements
from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Name

FORMAT = ToolFormat(
    open="]<]minimax[>[<tool_call>",
    call=(']<]minimax[>[<invoke name="', Name(until='">'), Elements(mark="]<]minimax[>[", end="</invoke>")),
    close="]<]minimax[>[</tool_call>",
    tokens=("]<]minimax[>[",),
    strips_before="\n",
)
ORIGIN = Origin(
    models="MiniMax M3",
    sources=("chat template of MiniMaxAI/MiniMax-M3",),
    templates=(("]<]minimax[>[", "<tool_call>"),),
    model_types=("minimax_m3",),
)
