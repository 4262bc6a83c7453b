"""Settings: a checkpoint's quantization_config read key by key, where a value that cannot be is an error that names its key."""

from collections.abc import Mapping
from typing import Any

from octavo.errors import ConfigError

_DAMAGED = "config.json does not belong to this checkpoint, or was changed: fetch the model again"


def wrong(key: str, value: Any, wanted: str) -> ConfigError:
    """The error for a key whose value is not what is `wanted`."""
    return ConfigError(f"quantization_config: {key} is {value!r}, not {wanted}", _DAMAGED)


def whole(config: Mapping[str, Any], key: str, default: int | None = None, least: int = 1) -> int:
    """A whole number; default: where the key is not there, or null. None: it must be there."""
    value = config.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise wrong(key, value, f"a whole number of at least {least}")
    return value


def switch(config: Mapping[str, Any], key: str, default: bool) -> bool:
    """true or false."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong(key, value, "true or false")
    return value


def word(config: Mapping[str, Any], key: str, default: str) -> str:
    """A text."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise wrong(key, value, "a word")
    return value


def names(config: Mapping[str, Any], *keys: str) -> list[str]:
    """The lists of names under all of these keys, one behind the other."""
    found: list[str] = []
    for key in keys:
        value = config.get(key) or []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise wrong(key, value, "a list of names")
        found += value
    return found


def table(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A table of keys; empty where there is none."""
    value = config.get(key) or {}
    if not isinstance(value, Mapping):
        raise wrong(key, value, "a table of keys")
    return value


def tables(config: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
    """A table of such."""
    found = table(config, key)
    return {name: table(found, name) for name in found}


def block(config: Mapping[str, Any], key: str, default: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """The rows and columns of a block."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise wrong(key, value, "rows and columns of a block")
    rows, columns = (whole({key: each}, key) for each in value)
    return rows, columns
