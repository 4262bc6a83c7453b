"""Calls as a JSON array between <tool_calls> and </tool_calls>."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Objects

FORMAT = ToolFormat(
    call=("<tool_calls>", Objects(), "</tool_calls>"),
    tokens=("<tool_calls>", "</tool_calls>"),
    strips_before=" \n",
)
ORIGIN = Origin(
    models="Jamba 1.5 to 1.7, Apriel",
    sources=("vLLM's description of it", "chat template of ServiceNow-AI/Apriel-1.6-15b-Thinker"),
    templates=(("<tool_calls>[",),),
    without=("<|extra_4|>",),
    model_types=("jamba",),
)
