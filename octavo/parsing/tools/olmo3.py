"""Calls as Python writes them, one a line, between <function_calls> and </function_calls>."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import PythonCalls

FORMAT = ToolFormat(
    call=("<function_calls>", PythonCalls(is_list=False), "</function_calls>"),
    tokens=("<function_calls>", "</function_calls>"),
    strips_before="\n",
)
ORIGIN = Origin(
    models="OLMo 3 and 3.1",
    sources=("chat template of allenai/Olmo-3.1-32B-Instruct",),
    templates=(("<function_calls>", "<functions>"),),
    model_types=("olmo3",),
)
