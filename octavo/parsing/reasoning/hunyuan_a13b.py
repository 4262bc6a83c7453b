"""<think>...</think> and the content between <answer> and </answer>, all in ordinary tokens."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<think>",),
    closes=("</think>",),
    wraps=("<answer>", "</answer>"),
)
ORIGIN = Origin(
    models="Hunyuan A13B and the Hunyuan dense models",
    sources=("vLLM's description of it", "vLLM's template for it"),
    templates=(("<|extra_0|>", "<think>"), ("<answer>", "<think>")),
    model_types=("hunyuan_v1_moe", "hunyuan_v1_dense"),
)
