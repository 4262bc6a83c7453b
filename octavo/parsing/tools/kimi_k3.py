"""Kimi K3 (XTML): elements opened and closed by tokens, arguments with a type each."""

from octavo.parsing.entries import Entries
from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Name, Until

TOKENS = ("<|open|>", "<|close|>", "<|sep|>")

FORMAT = ToolFormat(
    open="<|open|>tools<|sep|>",
    call=(
        '<|open|>call tool="',
        Name(until='"', is_escaped=True),
        Until("<|sep|>"),
        Entries(
            open='<|open|>argument key="',
            key_end='"',
            type_open=' type="',
            type_end='"<|sep|>',
            close="<|close|>argument<|sep|>",
            end="<|close|>call<|sep|>",
            is_escaped=True,
        ),
    ),
    close="<|close|>tools<|sep|>",
    tokens=TOKENS,
)

ORIGIN = Origin(
    models="Kimi K3",
    sources=("encoding code and chat template of moonshotai/Kimi-K3",),
    templates=(("<|open|>", "<|sep|>", "<|end_of_msg|>"),),
    model_types=("kimi_k3",),
)
