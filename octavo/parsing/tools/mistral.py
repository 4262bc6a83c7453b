"""[TOOL_CALLS] and a JSON array of calls (tokenizer v3 to v7), or [TOOL_CALLS]NAME[ARGS]{...} for each call (v11 and later)."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Arguments, Id, Maybe, Name, Objects, OneOf

FORMAT = ToolFormat(
    call=("[TOOL_CALLS]", OneOf(((Objects(),), (Name(), Maybe(("[CALL_ID]", Id())), Maybe(("[ARGS]",)), Arguments())))),
    tokens=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    ends_reasoning=False,
)

ORIGIN = Origin(
    models="Mistral, Ministral, Magistral, Devstral, Pixtral",
    sources=(
        "mistral-common",
        "chat template of mistralai/Mistral-Nemo-Instruct-2407",
        "chat template of mistralai/Mistral-Small-3.2-24B-Instruct-2506",
    ),
    templates=(("[TOOL_CALLS]",),),
    model_types=("mistral", "mistral3", "ministral3", "mixtral", "pixtral", "voxtral"),
)
