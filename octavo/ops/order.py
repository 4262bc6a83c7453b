"""The order in which implementations of each op are tried, by device. Declared, not scored."""

ORDER: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": {
        "rms_norm": ("cpu.norm", "reference"),
        "add_rms_norm": ("cpu.add_norm", "reference"),
        "gated_activation": ("cpu.activation", "reference"),
        "rope_store": ("cpu.rope_store", "reference"),
        "attention": ("cpu.attention_bf16", "cpu.attention_fma", "reference"),
        "linear": ("cpu.linear_tile", "cpu.linear_int8", "cpu.linear_coded", "cpu.linear_decoded", "reference"),
        "embedding": ("cpu.embedding_gather", "cpu.embedding_coded", "cpu.embedding_decoded", "reference"),
        "moe_route": ("cpu.moe_top_k", "reference"),
        "sample": ("cpu.sample_row", "reference"),
        "top_logprobs": ("reference",),
        "moe_experts": ("cpu.moe_tile", "reference"),
    },
}
