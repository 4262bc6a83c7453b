"""{"name": ..., "parameters": {...}} as the whole answer, perhaps after <|python_tag|>: Llama 3.1 to 3.3."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Maybe, Object, Objects

FORMAT = ToolFormat(
    call=(Maybe(("<|python_tag|>",)), Objects(Object(is_bare=True))),
    markers=("<|python_tag|>",),
    bare="{",
    tokens=("<|python_tag|>",),
)

ORIGIN = Origin(
    models="Llama 3.1, 3.2 and 3.3",
    sources=("chat template of meta-llama/Llama-3.3-70B-Instruct",),
    templates=(("<|start_header_id|>", "ipython", '"parameters": '),),
)
