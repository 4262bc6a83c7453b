"""Harmony: messages in channels, a call being one whose recipient is a function. gpt-oss."""

from octavo.parsing.channels import Channels
from octavo.parsing.origin import Origin

FORMAT = Channels(
    start="<|start|>",
    channel="<|channel|>",
    message="<|message|>",
    ends=("<|end|>", "<|call|>", "<|return|>"),
    tokens=("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"),
    closes=("<|channel|>final<|message|>",),
)

ORIGIN = Origin(
    models="gpt-oss",
    sources=("openai-harmony, the format's own description", "chat template of openai/gpt-oss-120b"),
    templates=(("<|channel|>", "commentary"),),
    model_types=("gpt_oss",),
)
