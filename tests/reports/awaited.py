"""Reports without a test, and the feature that each awaits. One that gets a test leaves this table."""

_KINDS = {
    "O": (5, "adapters"),
    "P": (5, "speculative decoding"),
    "R": (3, "further endpoints: embeddings, responses, fill in the middle"),
}
AWAITED = {f"{kind}{number}": feature for kind, (count, feature) in _KINDS.items() for number in range(1, count + 1)}
AWAITED |= {
    "C13": "speculative decoding",
    "L6": "speculative decoding: a request with a grammar has no drafts verified",
    "L7": "speculative decoding: a request with a grammar has no drafts verified",
    "I1": "adapters: one that is loaded again under its old name",
    "I2": "adapters: what each of them computed is kept apart",
}
