"""Calls as a JSON array between <tool_calls> and </tool_calls>, written in ordinary tokens."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Objects

FORMAT = ToolFormat(call=("<tool_calls>", Objects(), "</tool_calls>"), strips_before="\n")
ORIGIN = Origin(
    models="Hunyuan A13B and the Hunyuan dense models",
    sources=("vLLM's template for Hunyuan A13B",),
    templates=(("<tool_calls>", "<|extra_4|>"),),
    model_types=("hunyuan_v1_moe", "hunyuan_v1_dense"),
)
