"""The format of hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools import hermes

FORMAT = hermes.FORMAT
ORIGIN = Origin(
    models="Qwen3 and Qwen2.5, as hermes",
    sources=("chat template of Qwen/Qwen3-0.6B",),
)
