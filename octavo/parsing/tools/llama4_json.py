"""{"name": ..., "parameters": {...}} as the whole answer, perhaps between <|python_start|> and <|python_end|>."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Maybe, Object, Objects

FORMAT = ToolFormat(
    call=(Maybe(("<|python_start|>",)), Objects(Object(is_bare=True)), Maybe(("<|python_end|>",))),
    markers=("<|python_start|>",),
    bare="{",
    tokens=("<|python_start|>", "<|python_end|>"),
)
ORIGIN = Origin(
    models="Llama 4 with a template that asks for JSON",
    sources=("vLLM's template for Llama 4 and JSON",),
    templates=(("<|header_start|>", '"parameters": '),),
)
