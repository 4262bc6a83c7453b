"""Actions: what each kind of option does with its words, and what becomes of one that octavo refuses or only accepts."""

import argparse
import json
from collections.abc import Callable
from dataclasses import Field
from typing import Any, NamedTuple

from octavo.cli.words import dashed
from octavo.config import awaited
from octavo.config.awaited import Awaited
from octavo.config.numbers import parse_count
from octavo.config.options import misfit
from octavo.errors import ConfigError

# in a namespace while it is filled: option -> Refusal; the options that the file has set
REFUSED, FROM_FILE = "_refused", "_from_file"
EVERY = "Every command"  # the group of what each command has
END_OF_FILE = "--\0"  # after the words of a --config file; nobody can type it


class Refusal(NamedTuple):
    """An option that octavo refuses, as it was typed."""

    said: str  # flag, value and reason
    value: Any


class OptionAction(argparse.Action):
    """Of a field of an options class, or of a line of the table of awaited options; one of the two is None."""

    option: "Field[Any] | None" = None
    line: Awaited | None = None
    is_shared = False  # of the engine or the server, which several commands have

    @property
    def kind(self) -> str:
        """As of config.options.option."""
        return str(self.option.metadata["kind"]) if self.option is not None else self.line.kind if self.line is not None else ""

    @property
    def words(self) -> tuple[str, ...]:
        """The values that can be typed, where they are words."""
        if self.option is not None and self.option.metadata["choices"]:
            return tuple(self.option.metadata["choices"])
        return () if self.option is not None else awaited.words(self.dest)

    def put(self, namespace: Any, value: Any, spelled: str | None) -> None:
        """Set the value, or note why it is refused or what is to be said about it."""
        if (why := awaited.refusal(self.dest, value)) is not None:
            shown = "" if self.nargs == 0 else f" {value if isinstance(value, str) else json.dumps(value)}"
            flag = spelled if self.nargs == 0 and spelled else self.option_strings[-1]
            namespace.__dict__.setdefault(REFUSED, {})[self.dest] = Refusal(f"{flag}{shown}: {why}", value)
        elif self.line is None:
            setattr(namespace, self.dest, value)
        elif (fact := awaited.fact(self.dest, value)) is not None:
            facts = [f for f in getattr(namespace, "accepted", []) if not f.startswith(f"{self.dest} = ")]
            namespace.accepted = [*facts, fact]


class StoreAction(OptionAction):
    """One value; for `bare` options none."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        self.put(namespace, values, option_string)


class ListAction(OptionAction):
    """Words, or one JSON list; given again, more of them."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        found: list[Any] = []
        for value in values:
            if isinstance(value, str) and value.startswith("["):
                try:
                    found += json.loads(value)
                except (ValueError, RecursionError) as error:
                    raise argparse.ArgumentError(self, f"{value!r} is no JSON list: {error}") from None
            else:
                found.append(value)
        from_file: set[str] = getattr(namespace, FROM_FILE, set())
        before = [] if self.dest in from_file else getattr(namespace, self.dest, [])  # the command line is over the file
        from_file.discard(self.dest)
        self.put(namespace, [*before, *found], option_string)


class SwitchAction(OptionAction):
    """What the spelling says: --x, --no-x, and their enable/disable mirrors."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        spelled = (option_string or "").lstrip("-").replace("-", "_")
        value = not spelled.startswith("no_")
        spelled = spelled.removeprefix("no_")
        mirrored = _mirrored(self.dest)
        if mirrored is not None and spelled != self.dest and mirrored.startswith(spelled):
            value = not value
        self.put(namespace, value, option_string)


class EndOfFileAction(argparse.Action):
    """Notes what the file has set, and that errors are now of the command line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "nargs": 0, "default": argparse.SUPPRESS, "dest": argparse.SUPPRESS})

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, FROM_FILE, set(vars(namespace)))
        parser.leave_file()


def find(parser: argparse.ArgumentParser, flag: str) -> argparse.Action | None:
    """The action that a spelling, or an unambiguous beginning of one, stands for."""
    flag = dashed(flag)
    if (exact := parser._option_string_actions.get(flag)) is not None:
        return exact
    found = {id(a): a for s, a in parser._option_string_actions.items() if flag.startswith("--") and s.startswith(flag)}
    return next(iter(found.values())) if len(found) == 1 else None


def commands_of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The parsers of the commands below one, where it has such."""
    return {name: each for a in parser._actions if isinstance(a, argparse._SubParsersAction) for name, each in a.choices.items()}


def known_flags(parser: argparse.ArgumentParser) -> list[str]:
    """Every spelling of every option."""
    return [flag for flag in parser._option_string_actions if flag != END_OF_FILE]


def spellings(name: str, short: tuple[str, ...], is_switch: bool) -> list[str]:
    """Every flag of an option: the short ones, the long one, for switches --no-x and the mirrors."""
    flags = [*short, "--" + name.replace("_", "-")]
    if is_switch:
        flags.append("--no-" + name.replace("_", "-"))
        if (mirrored := _mirrored(name)) is not None:
            flags += ["--" + mirrored.replace("_", "-"), "--no-" + mirrored.replace("_", "-")]
    return flags


def _mirrored(name: str) -> str | None:
    for one, other in (("enable_", "disable_"), ("disable_", "enable_")):
        if name.startswith(one):
            return other + name.removeprefix(one)
    return None


def add_field(group: Any, f: "Field[Any]", is_shared: bool = False) -> None:
    """A field of Options or ServerOptions. What is not typed stays out of the namespace."""
    meta = f.metadata
    action = _add(group, f.name, meta["aliases"], meta["kind"], _of_field(f), meta["bare"])
    action.option = f
    action.is_shared = is_shared
    action.help = help_text(f)


def add_line(group: Any, line: Awaited) -> None:
    """A line of the table of awaited options."""
    action = _add(group, line.name, line.flags, line.kind, _of_line(line), None)
    action.line = line
    action.is_shared = True
    action.help = line.effect if line.is_refused else line.told


def _add(group: Any, name: str, short: tuple[str, ...], kind: str, convert: Callable[[str], Any], bare: Any) -> OptionAction:
    common: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS}
    # a command's own short flag is over one of the engine's
    flags = [f for f in spellings(name, short, kind == "switch") if f.startswith("--") or f not in group._option_string_actions]
    if kind == "switch":
        action = group.add_argument(*flags, action=SwitchAction, nargs=0, **common)
    elif kind in ("list", "ints"):
        action = group.add_argument(*flags, action=ListAction, nargs="+", metavar="X", type=convert, **common)
    else:
        more = {"nargs": "?", "const": bare} if bare is not None else {}
        action = group.add_argument(*flags, action=StoreAction, metavar=name.rsplit("_", 1)[-1].upper(), type=convert, **more, **common)
    assert isinstance(action, OptionAction)
    return action


def help_text(f: "Field[Any]") -> str:
    """What an option does, with its default where it says nothing of it."""
    text = str(f.metadata["help"])
    is_told = f.default in (None, False, "") or "default" in text or callable(f.default_factory) or callable(f.default)
    return text if is_told or f.metadata["kind"] == "json" else f"{text} (default: {f.default})"


def _of_field(f: "Field[Any]") -> Callable[[str], Any]:
    def check(value: Any) -> str | None:
        return None if awaited.refusal(f.name, value) is not None else misfit(f, value)

    return _converter(f.metadata["parse"] or KINDS[f.metadata["kind"]], check, f.metadata["choices"])


def _of_line(line: Awaited) -> Callable[[str], Any]:
    def check(value: Any) -> str | None:
        known = awaited.words(line.name)
        return awaited.unknown_word(str(value), known) if known and str(value) not in known else awaited.unknown_key(line.name, value)

    return _converter(KINDS[line.kind], check, None)


def _converter(convert: Callable[[str], Any], check: Callable[[Any], str | None], choices: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = convert(text)
        except (ConfigError, ValueError, RecursionError) as error:
            raise argparse.ArgumentTypeError(str(error).replace("\nhint: ", "; ")) from None
        if (wrong := check(value)) is not None:
            raise argparse.ArgumentTypeError(wrong)
        return value

    return read


def _whole(text: str) -> int | str:
    return text if text.startswith("[") else parse_count(text)  # type: ignore[return-value]


KINDS: dict[str, Callable[[str], Any]] = {
    "int": parse_count,
    "float": float,
    "json": json.loads,
    "str": str,
    "switch": str,  # takes no word
    "list": str,
    "ints": _whole,
}
