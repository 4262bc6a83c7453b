"""<seed:think>...</seed:think>, which the model opens itself."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin

FORMAT = ReasoningFormat(
    opens=("<seed:think>",),
    closes=("</seed:think>",),
    tokens=("<seed:think>", "</seed:think>"),
)
ORIGIN = Origin(
    models="Seed-OSS",
    sources=("chat template of ByteDance-Seed/Seed-OSS-36B-Instruct",),
    templates=(("<seed:think>",),),
    model_types=("seed_oss",),
)
