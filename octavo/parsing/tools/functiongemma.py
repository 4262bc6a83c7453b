"""Each call as call:NAME{key:value} with strings between <escape> marks, from <start_function_call> to <end_function_call>."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Braces, Name

FORMAT = ToolFormat(
    call=("<start_function_call>", "call:", Name(), Braces("<escape>"), "<end_function_call>"),
    tokens=("<start_function_call>", "<end_function_call>", "<escape>"),
    strips_before="\n",
)
ORIGIN = Origin(
    models="FunctionGemma",
    sources=("recorded outputs of google/functiongemma-270m-it in public repositories",),
    templates=(("<start_function_call>",),),
)
