"""<|tool_call>call:NAME{key:<|"|>text<|"|>,n:1}<tool_call|>: Gemma 4."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.parts import Braces, Name

FORMAT = ToolFormat(
    call=("<|tool_call>", "call:", Name(), Braces(quote='<|"|>'), "<tool_call|>"),
    tokens=("<|tool_call>", "<tool_call|>", '<|"|>'),
    strips_sentence=True,
)
