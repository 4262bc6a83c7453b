"""Calls as a JSON array that is the whole answer; also in a code fence, after [TOOL_CALLS] or between <tool_call> and </tool_call>."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Object, Objects, OneOf

_CALLS = Objects(Object(is_bare=True))
FORMAT = ToolFormat(
    call=(
        OneOf(
            (
                ("```json", _CALLS, "```"),
                ("```", _CALLS, "```"),
                ("[TOOL_CALLS]", _CALLS),
                ("<tool_call>", _CALLS, "</tool_call>"),
                (_CALLS,),
            )
        ),
    ),
    markers=("```", "[TOOL_CALLS]", "<tool_call>"),
    bare="[",
    strips_before="\n",
)
ORIGIN = Origin(
    models="xLAM 2",
    sources=("vLLM's template for xLAM",),
    templates=(("tool_call_name",), ("xLAM",)),
)
