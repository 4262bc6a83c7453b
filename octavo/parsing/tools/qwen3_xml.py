"""The format of qwen3_coder, by its other name."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools import qwen3_coder

FORMAT = qwen3_coder.FORMAT
ORIGIN = Origin(
    models="as qwen3_coder",
    sources=("vLLM's second name of qwen3_coder",),
)
