"""Families: architectures that are not built yet, by name, so that a plan for one is refused for what it waits for (families.toml)."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from octavo import plugins


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """told: what it is called in messages."""

    told: str
    names: list[str]
    model_types: list[str]


@cache
def table() -> dict[str, Family]:
    """Every family that octavo waits for, by its key."""
    found = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: msgspec.convert(entry, Family) for name, entry in found.items()}


def of_name(model: str) -> Family | None:
    """By how a hub id or a path ends; None: the name tells no family that is awaited."""
    last = model.rstrip("/").rpartition("/")[2].lower()
    fits = [(len(start), family) for family in table().values() for start in family.names if last.startswith(start)]
    return max(fits, key=lambda fit: fit[0])[1] if fits else None


def of_config(hf_config: dict[str, Any]) -> Family | None:
    """By the model type of a config.json, or of the language model in it."""
    inner = hf_config.get("text_config")
    types = {hf_config.get("model_type"), inner.get("model_type") if isinstance(inner, dict) else None}
    return next((family for family in table().values() if types & set(family.model_types)), None)


def hint() -> str:
    """What can be planned instead."""
    return f"octavo plans what it builds: {', '.join(plugins.names('models'))}"
