"""The format of hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools import hermes

FORMAT = hermes.FORMAT
ORIGIN = Origin(
    models="Granite 4.0 and 4.1",
    sources=("chat template of ibm-granite/granite-4.0-h-small", "chat template of ibm-granite/granite-4.1-8b"),
    templates=(("<|start_of_role|>", "<tool_call>"),),
    without=("<function=",),
    model_types=("granitemoehybrid",),
)
