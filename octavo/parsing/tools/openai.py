"""Harmony: messages in channels, a call being one whose recipient is a function. gpt-oss."""

from octavo.parsing.channels import Channels

FORMAT = Channels(
    start="<|start|>",
    channel="<|channel|>",
    message="<|message|>",
    ends=("<|end|>", "<|call|>", "<|return|>"),
    tokens=("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"),
    closes=("<|channel|>final<|message|>",),
)
