"""Calls as a JSON array after <|tool_call|> (a token; 3.1 writes <tool_call> in letters); nothing closes it."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Objects, OneOf

FORMAT = ToolFormat(
    call=(OneOf((("<|tool_call|>",), ("<tool_call>",))), Objects()),
    markers=("<|tool_call|>", "<tool_call>"),
    tokens=("<|tool_call|>",),
    strips_before="\n",
)
ORIGIN = Origin(
    models="Granite 3.0 to 3.3",
    sources=("chat template of ibm-granite/granite-3.3-2b-instruct",),
    templates=(("<|tool_call|>",),),
    model_types=("granite",),
)
