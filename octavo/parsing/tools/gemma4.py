"""<|tool_call>call:NAME{key:<|"|>text<|"|>,n:1}<tool_call|>: Gemma 4."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Braces, Name

FORMAT = ToolFormat(
    call=("<|tool_call>", "call:", Name(), Braces(quote='<|"|>'), "<tool_call|>"),
    tokens=("<|tool_call>", "<tool_call|>", '<|"|>'),
    strips_sentence=True,
)

ORIGIN = Origin(
    models="Gemma 4",
    sources=("chat template of google/gemma-4-31B-it",),
    templates=(("<|tool_call>",),),
)
