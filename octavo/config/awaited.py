"""Awaited: options of vLLM that octavo refuses by name, or accepts with a fact for the log. The table is awaited.txt beside this file."""

import difflib
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from octavo.errors import ConfigError

# keys that are options too
NESTED = {
    ("attention_config", "backend"): "attention_backend",
    ("compilation_config", "cudagraph_capture_sizes"): "cudagraph_capture_sizes",
    ("compilation_config", "max_cudagraph_capture_size"): "max_cudagraph_capture_size",
    ("structured_outputs_config", "reasoning_parser"): "reasoning_parser",
    ("structured_outputs_config", "reasoning_parser_plugin"): "reasoning_parser_plugin",
}


class Awaited(NamedTuple):
    """One line of the table."""

    section: str  # the class that vLLM keeps the option in
    name: str
    flags: tuple[str, ...]  # short ones
    kind: str  # as of config.options.option
    harmless: tuple[Any, ...]  # values that ask for nothing; so does None
    effect: str  # of any other value: "awaits X", "never: why", "note: fact"
    words: tuple[str, ...]  # the other values that there are; empty: any

    @property
    def is_refused(self) -> bool:
        return not self.effect.startswith("note: ")

    @property
    def told(self) -> str:
        """The effect as a user reads it."""
        return self.effect.removeprefix("never: ").removeprefix("note: ")


@cache
def rows() -> tuple[Awaited, ...]:
    """Every line of the table, in order."""
    return tuple(_row(section, cells) for section, cells in _lines() if section != "keys")


@cache
def by_name() -> dict[str, tuple[Awaited, ...]]:
    """The lines of each option."""
    found: dict[str, list[Awaited]] = {}
    for row in rows():
        found.setdefault(row.name, []).append(row)
    return {name: tuple(lines) for name, lines in found.items()}


@cache
def keys() -> dict[str, tuple[str, ...]]:
    """The keys of those JSON options whose keys are judged."""
    return {cells[0]: tuple(cells[1].split()) for section, cells in _lines() if section == "keys"}


@cache
def _key_effects() -> dict[str, str]:
    """What the keys of a JSON option get, where they get the same."""
    return {cells[0]: cells[2] for section, cells in _lines() if section == "keys" and len(cells) > 2}


def _key_refusal(name: str, key: str, value: Any) -> str | None:
    if (option := NESTED.get((name, key))) is not None:
        return refusal(option, value)
    return None if value in (None, False, "auto", {}) or key not in keys()[name] else _key_effects()[name]


@cache
def _lines() -> tuple[tuple[str, list[str]], ...]:
    section, found = "", []
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            found.append((section, [cell.strip() for cell in line.split("|")]))
    return tuple(found)


def _row(section: str, cells: list[str]) -> Awaited:
    name, *flags = cells[0].split()
    words = tuple(cells[4].split()) if len(cells) > 4 else ()
    return Awaited(section, name, tuple(flags), cells[1], tuple(_value(v) for v in cells[2].split()), cells[3], words)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def refusal(name: str, value: Any) -> str | None:
    """Why this value of this option is refused, without the option's name; None if it is not."""
    if isinstance(value, dict) and name in _key_effects():
        for key, inner in value.items():
            if (why := _key_refusal(name, key, inner)) is not None:
                return f"{key}: {why}"
    lines = by_name().get(name, ())
    if not lines or value is None or any(value in row.harmless for row in lines):
        return None
    for row in lines:
        if not row.is_refused and (not row.words or str(value) in row.words):
            return None
        if row.is_refused and (not row.words or str(value).lower() in map(str.lower, row.words)):
            return row.told
    return None


def fact(name: str, value: Any) -> str | None:
    """What the log says of an option that is accepted and changes nothing; None if there is nothing to say."""
    for row in by_name().get(name, ()):
        if not row.is_refused and value is not None and value not in row.harmless and (not row.words or str(value) in row.words):
            return f"{name} = {value}: {row.told}"
    return None


def words(name: str) -> tuple[str, ...]:
    """Every value of the option that is a word, the awaited ones included; empty if it takes any."""
    lines = by_name().get(name, ())
    if not any(row.words for row in lines):
        return ()
    return tuple(dict.fromkeys(str(v) for row in lines for v in (*row.harmless, *row.words) if v != ""))


def unknown_key(name: str, value: Any) -> str | None:
    """What is wrong with the keys of a JSON option, or None."""
    known = keys().get(name)
    if known is None or not isinstance(value, dict):
        return None
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            return f"{name} has no key {key!r}" + (f"; did you mean {near[0]}?" if near else "")
    return None


def unknown_word(value: str, known: tuple[str, ...]) -> str:
    """The complaint about a value that is none of the known words."""
    near = [w for w in known if w.lower().startswith(value.lower())] or difflib.get_close_matches(value, known, n=2)
    hint = f"did you mean {' or '.join(near[:3])}?" if near else f"choose from {', '.join(known)}"
    return f"invalid choice {value!r}; {hint}"


def take_accepted(typed: dict[str, Any], known: set[str], speaker: str) -> tuple[dict[str, Any], list[str]]:
    """Split typed options into those that octavo has (`known`) and the facts about those that it only accepts.

    Raises ConfigError for what is refused, all of it at once, and for a name that is neither.
    """
    kept: dict[str, Any] = {}
    facts, refused = [], []
    for name, value in typed.items():
        if (why := refusal(name, value)) is not None:
            refused.append(f"{name}={value!r}: {why}")
        elif name in known:
            kept[name] = value
        elif name not in by_name():
            near = difflib.get_close_matches(name, [*known, *by_name()], n=1)
            raise ConfigError(
                f"{speaker} has no option {name!r}", f"did you mean {near[0]}?" if near else "octavo serve --help=all lists them"
            )
        elif wrong := _misfit(name, value):
            raise ConfigError(f"{speaker}: {name}: {wrong}")
        elif (said := fact(name, value)) is not None:
            facts.append(said)
    if refused:
        raise ConfigError("\n".join(refused), "leave it away")
    return kept, facts


def _misfit(name: str, value: Any) -> str | None:
    known = words(name)
    if known and value is not None and str(value) not in known:
        return unknown_word(str(value), known)
    return unknown_key(name, value)
