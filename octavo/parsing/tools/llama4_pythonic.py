"""[f(city="Paris"), g()] as the whole answer, perhaps between <|python_start|> and <|python_end|>: Llama 4."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.parts import Maybe, PythonCalls

FORMAT = ToolFormat(
    call=(Maybe(("<|python_start|>",)), PythonCalls(), Maybe(("<|python_end|>",))),
    markers=("<|python_start|>",),
    bare="[",
    tokens=("<|python_start|>", "<|python_end|>"),
)
