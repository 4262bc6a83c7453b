"""<steptml:invoke name="NAME"> with a <steptml:parameter name="KEY"> each, between markers for one call and for all: Step 3."""

from octavo.parsing.entries import Entries
from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Maybe, Name

FORMAT = ToolFormat(
    open="<｜tool_calls_begin｜>",
    call=(
        "<｜tool_call_begin｜>",
        Maybe(("function",)),
        Maybe(("<｜tool_sep｜>",)),
        '<steptml:invoke name="',
        Name(until='">'),
        Entries(
            open='<steptml:parameter name="',
            key_end='">',
            close="</steptml:parameter>",
            end="</steptml:invoke>",
            then="<｜tool_call_end｜>",
        ),
        "<｜tool_call_end｜>",
        Maybe(("<｜tool_sep｜>",)),
    ),
    close="<｜tool_calls_end｜>",
    tokens=("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>", "<｜tool_sep｜>", "<｜tool_call_end｜>", "<｜tool_calls_end｜>"),
    strips_before="\n",
)
ORIGIN = Origin(
    models="Step 3",
    sources=("documents in SGLang's and vLLM's tests",),
    templates=(("steptml:",),),
    model_types=("step3", "step3_vl"),
)
