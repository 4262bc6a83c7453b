"""<think>...</think>; the answer begins inside the thought."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<think>",),
    closes=("</think>",),
    tokens=("<think>", "</think>"),
    starts_open=True,
)
ORIGIN = Origin(
    models="Step 3",
    sources=("vLLM's description of it",),
    templates=(("steptml:", "<think>"),),
    model_types=("step3", "step3_vl"),
)
