"""<think>...</think> in ordinary tokens, opened by the prompt."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<think>",),
    closes=("</think>",),
)
ORIGIN = Origin(
    models="OLMo 3 Think",
    sources=("chat template of allenai/Olmo-3-7B-Think",),
    templates=(("<functions>", "<think>", "<|im_start|>"),),
    model_types=("olmo3",),
)
