"""<think>...</think>, opened by the prompt; calls inside it end it."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<think>",),
    closes=("</think>",),
    tokens=("<think>", "</think>"),
    starts_open=True,
)
ORIGIN = Origin(
    models="MiniMax M2, M2.1 and M2.5",
    sources=("chat template of MiniMaxAI/MiniMax-M2",),
    templates=(("]~b]ai", "<think>"),),
    model_types=("minimax_m2",),
)
