"""[f(city="Paris"), g()] as the whole answer, perhaps between <|python_start|> and <|python_end|>: Llama 4."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Maybe, PythonCalls

FORMAT = ToolFormat(
    call=(Maybe(("<|python_start|>",)), PythonCalls(), Maybe(("<|python_end|>",))),
    markers=("<|python_start|>",),
    bare="[",
    tokens=("<|python_start|>", "<|python_end|>"),
)

ORIGIN = Origin(
    models="Llama 4",
    sources=("chat template of meta-llama/Llama-4-Scout-17B-16E-Instruct",),
    templates=(("<|header_start|>", "<|python_start|>"), ("<|header_start|>", "func_name1(")),
    without=('"parameters": ',),
    model_types=("llama4",),
)
