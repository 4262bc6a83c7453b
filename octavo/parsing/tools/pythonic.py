"""Calls as a Python list that is the whole answer: [get_weather(city="Paris"), now()]."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import PythonCalls

FORMAT = ToolFormat(call=(PythonCalls(),), bare="[")
ORIGIN = Origin(
    models="ToolACE, Llama 3.2 with a template that asks for Python, Gemma 3 prompted for it",
    sources=("vLLM's template for ToolACE", "Google's page on function calling with Gemma"),
    templates=(("[func_name1(",),),
    without=("<|header_start|>", "<|tool_call_start|>"),
)
