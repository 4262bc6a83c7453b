"""[TOOL_CALLS] and a JSON array of calls (tokenizer v3 to v7), or [TOOL_CALLS]NAME[ARGS]{...} for each call (v11 and later)."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.parts import Arguments, Id, Maybe, Name, Objects, OneOf

FORMAT = ToolFormat(
    call=("[TOOL_CALLS]", OneOf(((Objects(),), (Name(), Maybe(("[CALL_ID]", Id())), Maybe(("[ARGS]",)), Arguments())))),
    tokens=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    ends_reasoning=False,
)
