"""From option fields to a command line: `_` is `-`, switches have a --no- form, sizes take units, JSON takes dotted keys."""

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from typing import Any, NoReturn

from octavo.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """argparse with our habits; an unknown option gets the nearest known one."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        words = fold_dotted([dashed(word) for word in (sys.argv[1:] if args is None else args)])
        parsed: argparse.Namespace
        parsed, unknown = self.parse_known_args(words, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return parsed

    def _unknown(self, word: str) -> str:
        known = [s for a in self._actions for s in a.option_strings]
        near = difflib.get_close_matches(word.split("=", maxsplit=1)[0], known, n=1, cutoff=0.5)
        return f"unknown argument {word}" + (f"; did you mean {near[0]}?" if near else "")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nhint: {self.prog} --help lists the options\n")


def dashed(word: str) -> str:
    """`--max_model_len=1_000` -> `--max-model-len=1_000`."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def fold_dotted(words: list[str]) -> list[str]:
    """`--hf-overrides.rope_scaling.factor 4` -> one JSON value of --hf-overrides, later keys over earlier ones."""
    rest: list[str] = []
    merged: dict[str, dict[str, Any]] = {}
    i = 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        if not name.startswith("--") or "." not in name:
            rest.append(words[i])
            i += 1
            continue
        if not equals:
            i += 1
            if i == len(words):
                raise ConfigError(f"{name} needs a value")
            value = words[i]
        i += 1
        option, *keys = name.split(".")
        place = merged.setdefault(option, {})
        for key in keys[:-1]:
            place = place.setdefault(key.replace("-", "_"), {})
        place[keys[-1].replace("-", "_")] = _json_or_text(value)
    return rest + [word for option, value in merged.items() for word in (option, json.dumps(value))]


def add_options(parser: argparse.ArgumentParser, cls: type, skip: tuple[str, ...] = ()) -> None:
    """Add every field of an options dataclass to the parser, in its groups. Absent options stay out of the namespace."""
    groups: dict[str, Any] = {}
    for f in fields(cls):
        if f.name in skip:
            continue
        title = f.metadata["group"]
        group = groups.get(title) or groups.setdefault(title, parser.add_argument_group(title))
        _add(group, f)


def _add(group: Any, f: "Field[Any]") -> None:
    meta = f.metadata
    flags = [*meta["aliases"], "--" + f.name.replace("_", "-")]
    common = {"dest": f.name, "default": argparse.SUPPRESS, "help": _help(f)}
    if meta["kind"] == "switch":
        group.add_argument(*flags, *_mirror(f.name), action=_Switch, nargs=0, **common)
    elif meta["kind"] == "list":
        group.add_argument(*flags, nargs="+", metavar="X", **common)
    else:
        metavar = None if meta["choices"] else f.name.rsplit("_", 1)[-1].upper()
        group.add_argument(*flags, type=_converter(f), choices=meta["choices"], metavar=metavar, **common)


def _help(f: "Field[Any]") -> str:
    text = str(f.metadata["help"]).replace("%", "%%")
    shown = f.default not in (None, False, "") and "default" not in text and not callable(f.default_factory)
    return f"{text} (default: {f.default})" if shown and not callable(f.default) and f.metadata["kind"] != "json" else text


def _mirror(name: str) -> list[str]:
    """--no-x of every switch; --disable-x of --enable-x and the other way round."""
    words = ["--no-" + name.replace("_", "-")]
    for one, other in (("enable_", "disable_"), ("disable_", "enable_")):
        if name.startswith(one):
            mirrored = other + name.removeprefix(one)
            words += ["--" + mirrored.replace("_", "-"), "--no-" + mirrored.replace("_", "-")]
    return words


class _Switch(argparse.Action):
    """Sets its destination to what the spelling says: --x, --no-x, and their enable/disable mirrors."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        spelled = (option_string or "").removeprefix("--").replace("-", "_")
        value = not spelled.startswith("no_")
        spelled = spelled.removeprefix("no_")
        if spelled != self.dest and self.dest.startswith(("enable_", "disable_")) and not self.dest.startswith(spelled):
            value = not value
        setattr(namespace, self.dest, value)


def _converter(f: "Field[Any]") -> Callable[[str], Any]:
    kind, parse = f.metadata["kind"], f.metadata["parse"]
    converters: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "json": json.loads, "str": str}

    def convert(text: str) -> Any:
        try:
            if parse is not None:
                return parse(text)
            return converters[kind](text)
        except (ConfigError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
