"""Words of a command line before they are parsed: `_` is `-` in flags, and dotted keys become one JSON value."""

import json
from collections.abc import Callable
from typing import Any

from octavo.errors import ConfigError

_PYTHON = {"True": True, "False": False, "None": None}


def dashed(word: str) -> str:
    """`--max_model_len=1_000` -> `--max-model-len=1_000`; what follows a dot is a key, and stays."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    option, dot, keys = name.partition(".")
    return option.replace("_", "-") + dot + keys + equals + value


def fold_dotted(words: list[str], find: Callable[[str], str]) -> list[str]:
    """`--hf-overrides.rope_scaling.factor 4` -> one JSON value of --hf-overrides, later keys over earlier ones.

    A key that ends in + takes a list: `--x.names+ a,b`. JSON of the same option that is given whole lies below the keys.
    find: the flag that a spelling stands for; it raises ConfigError if there is none that takes JSON.
    """
    rest, merged = _split(words, find)
    if not merged:
        return words
    kept: list[str] = []
    i = 0
    while i < len(rest):
        name, equals, value = rest[i].partition("=")
        flag = find(name) if name.startswith("-") and _is_among(name, merged, find) else None
        if flag is None or (not equals and i + 1 == len(rest)):
            kept.append(rest[i])
            i += 1
            continue
        whole = json_or_text(value if equals else rest[i + 1])
        i += 1 if equals else 2
        if isinstance(whole, dict):
            merged[flag] = merge(whole, merged[flag])
    return kept + [word for flag, value in merged.items() for word in (flag, json.dumps(value))]


def _split(words: list[str], find: Callable[[str], str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    rest: list[str] = []
    merged: dict[str, dict[str, Any]] = {}
    i = 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        i += 1
        if not _is_dotted(name):
            rest.append(words[i - 1])
            continue
        if not equals:
            if i == len(words):
                raise ConfigError(f"{name} needs a value")
            value = words[i]
            i += 1
        option, *keys = name.split(".")
        _place(merged.setdefault(find(option), {}), [key.replace("-", "_") for key in keys], value, name)
    return rest, merged


def _is_dotted(name: str) -> bool:
    """A flag with keys; a negative number with decimals is none."""
    return name.startswith("-") and "." in name and name.lstrip("-")[:1].isalpha()


def _is_among(name: str, merged: dict[str, Any], find: Callable[[str], str]) -> bool:
    try:
        return find(name) in merged
    except ConfigError:
        return False


def _place(place: dict[str, Any], keys: list[str], value: str, name: str) -> None:
    if not all(key.rstrip("+") for key in keys):
        raise ConfigError(f"{name} has an empty key")
    for key in keys[:-1]:
        inner = place.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{name}: {key} has a value already, and cannot have keys too")
        place = inner
    last = keys[-1]
    if not last.endswith("+"):
        place[last] = json_or_text(value)
        return
    added = json_or_text(value) if value.startswith("[") else [json_or_text(part) for part in value.split(",")]
    before = place.setdefault(last.rstrip("+"), [])
    if not isinstance(before, list):
        raise ConfigError(f"{name}: {last.rstrip('+')} has a value already that is no list")
    before.extend(added)


def json_or_text(value: str) -> Any:
    """JSON where it is JSON (True, False and None too), else the text."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return _PYTHON.get(value, value)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, dictionaries key by key."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if both else value
    return result
