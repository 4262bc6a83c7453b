"""The file of --config: a YAML mapping from options to values, as the words that would say the same on the command line."""

import argparse
import difflib
import json
from pathlib import Path
from typing import Any

from octavo.cli.actions import OptionAction, SwitchAction, find, known_flags
from octavo.errors import ConfigError


def read(path: str, parser: argparse.ArgumentParser) -> list[str]:
    """The words of every key of the file. Raises ConfigError for what is no such mapping, and for a key that is no option."""
    import yaml

    try:
        content = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"is no YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return []
    if not isinstance(content, dict):
        raise ConfigError("holds no mapping from options to values", "write lines such as  max-num-seqs: 8")
    return [word for key, value in content.items() for word in _words(str(key), value, parser)]


def _words(key: str, value: Any, parser: argparse.ArgumentParser) -> list[str]:
    name, dot, keys = key.lstrip("-").partition(".")
    name = "model" if name.replace("-", "_") == "model_tag" else name
    flag = "--" + name.replace("_", "-")
    action = find(parser, flag)
    if action is None or flag == "--config":
        raise ConfigError(f"unknown option {key!r}" + _near(key, parser))
    if value is None:
        return []
    if isinstance(value, bool) and (isinstance(action, SwitchAction) or action.nargs == 0):
        if value:
            return [flag]
        return ["--no-" + flag.removeprefix("--")] if isinstance(action, SwitchAction) else []
    if dot or (isinstance(action, OptionAction) and action.kind == "json"):
        text = value if isinstance(value, str) else json.dumps(value)
        return [f"{flag}{dot}{keys}={text}"]
    if isinstance(value, dict):
        raise ConfigError(f"{key} takes no mapping")
    if not isinstance(value, list):
        return [f"{flag}={_text(value)}"]
    if not _takes_several(action):
        raise ConfigError(f"{key} takes one value, not a list")
    # a list as JSON where a word might be taken for a flag; other commands' own options take plain words
    return [f"{flag}={json.dumps(value)}"] if isinstance(action, OptionAction) else [flag, *map(_text, value)]


def _takes_several(action: argparse.Action) -> bool:
    return action.nargs in ("+", "*") or isinstance(action.nargs, int)


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (dict, list, bool)) else str(value)


def _near(key: str, parser: argparse.ArgumentParser) -> str:
    names = [flag.removeprefix("--") for flag in known_flags(parser) if flag.startswith("--")]
    near = difflib.get_close_matches(key.lstrip("-").replace("_", "-"), names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
