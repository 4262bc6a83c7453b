"""The think element of Kimi K3's XTML; the response element holds the content."""

from octavo.parsing.formats import ReasoningFormat
from octavo.parsing.origin import Origin
from octavo.parsing.tools.kimi_k3 import TOKENS

FORMAT = ReasoningFormat(
    opens=("<|open|>think<|sep|>",),
    closes=("<|close|>think<|sep|>", "<|open|>response<|sep|>"),
    tokens=TOKENS,
    strips="",
    ignores=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
)

ORIGIN = Origin(
    models="Kimi K3",
    sources=("encoding code and chat template of moonshotai/Kimi-K3",),
    templates=(("<|open|>", "<|sep|>", "<|end_of_msg|>"),),
    model_types=("kimi_k3",),
)
