"""The order in which attention back ends are tried, by device. Declared, not scored."""

ORDER: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu_attn", "torch_sdpa"),
}
