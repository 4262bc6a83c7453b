"""Reports without a test, and the feature that each awaits. One that gets a test leaves this table."""

_KINDS = {
    "J": (14, "tool calling"),
    "K": (5, "reasoning apart from content"),
    "L": (12, "structured output"),
    "O": (5, "adapters"),
    "P": (5, "speculative decoding"),
    "R": (3, "further endpoints: embeddings, responses, fill in the middle"),
}
AWAITED = {f"{kind}{number}": feature for kind, (count, feature) in _KINDS.items() for number in range(1, count + 1)}
AWAITED |= {
    "A6": "reasoning apart from content: no tag is split off yet, so none can be torn",
    "C13": "speculative decoding",
    "I1": "adapters: one that is loaded again under its old name",
    "I2": "adapters: what each of them computed is kept apart",
}
