"""{"name": ..., "parameters": {...}} as the whole answer, perhaps after <|python_tag|>: Llama 3.1 to 3.3."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.parts import Maybe, Object, Objects

FORMAT = ToolFormat(
    call=(Maybe(("<|python_tag|>",)), Objects(Object(is_bare=True))),
    markers=("<|python_tag|>",),
    bare="{",
    tokens=("<|python_tag|>",),
)
