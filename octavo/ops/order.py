"""The order in which implementations of each op are tried, by device. Declared, not scored."""

ORDER: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": {},
}
