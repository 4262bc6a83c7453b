"""Each call as a JSON object between <tool_call> and </tool_call>, as hermes."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools.hermes import FORMAT as FORMAT

ORIGIN = Origin(
    models="Qwen3 and Qwen2.5, as hermes",
    sources=("chat template of Qwen/Qwen3-0.6B",),
)
