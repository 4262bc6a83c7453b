"""The analysis channel of gpt-oss."""

from octavo.parsing.origin import Origin
from octavo.parsing.tools import openai

FORMAT = openai.FORMAT
ORIGIN = Origin(
    models="gpt-oss",
    sources=("openai-harmony, the format's own description", "chat template of openai/gpt-oss-120b"),
    templates=(("<|channel|>", "analysis"),),
    model_types=("gpt_oss",),
)
