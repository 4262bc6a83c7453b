"""Each call as a JSON object with name and parameters between <|action_start|><|plugin|> and <|action_end|>."""

from octavo.parsing.formats import ToolFormat
from octavo.parsing.origin import Origin
from octavo.parsing.parts import Object

FORMAT = ToolFormat(
    call=("<|action_start|>", "<|plugin|>", Object(), "<|action_end|>"),
    tokens=("<|action_start|>", "<|plugin|>", "<|action_end|>"),
    strips_before="\n",
)
ORIGIN = Origin(
    models="InternLM 2.5 and 3, Intern-S1",
    sources=("InternLM's page on its chat format",),
    templates=(("<|action_start|>",), ("<|plugin|>",)),
    model_types=("internlm2", "internlm3"),
)
