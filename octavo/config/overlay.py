"""Overlay: JSON objects laid over each other, as options and config files are."""

from typing import Any


def overlay(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, dictionaries key by key."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = overlay(result[key], value) if both else value
    return result
