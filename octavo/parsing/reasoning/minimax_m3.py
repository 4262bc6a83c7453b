"""<mm:think>...</mm:think>, which the model opens itself or finds opened."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<mm:think>",),
    closes=("</mm:think>",),
    tokens=("<mm:think>", "</mm:think>"),
    strips="\n",
)
ORIGIN = Origin(
    models="MiniMax M3",
    sources=("chat template of MiniMaxAI/MiniMax-M3",),
    templates=(("<mm:think>",),),
    model_types=("minimax_m3",),
)
