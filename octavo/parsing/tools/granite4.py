"""Each call as a JSON object between <tool_call> and </tool_call>, as hermes."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools.hermes import FORMAT as FORMAT

ORIGIN = Origin(
    models="Granite 4.0 and 4.1",
    sources=("chat template of ibm-granite/granite-4.0-h-small", "chat template of ibm-granite/granite-4.1-8b"),
    templates=(("<|start_of_role|>", "<tool_call>"),),
    model_types=("granitemoehybrid",),
)
