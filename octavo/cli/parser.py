"""The command line: argparse with our habits. Abbreviations, mirrors, dotted keys, units, a file, help by topic, did-you-mean."""

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from octavo.cli import actions, terminal
from octavo.cli.words import dashed, fold_dotted
from octavo.config import awaited
from octavo.config.options import Options, ServerOptions, typed_fields
from octavo.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """What every command parses with. `prog` is its name, as `octavo bench serve`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"add_help": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **options})
        self._file = ""  # the --config file that is being read
        every = self.add_argument_group(actions.EVERY)
        every.add_argument(
            "-h", "--help", action="store_true", default=argparse.SUPPRESS, help="this text; --help=all, GROUP, FLAG or page"
        )
        every.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="YAML file of options; the command line is over it")
        every.add_argument("--color", choices=terminal.CHOICES, default=argparse.SUPPRESS, help="colours; auto = on a terminal")
        self.add_argument(actions.END_OF_FILE, action=actions.EndOfFileAction, help=argparse.SUPPRESS)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """The command line over its file. Ends the program for help (0) and for what is wrong or refused (2)."""
        words = [dashed(word) for word in (sys.argv[1:] if args is None else args)]
        if (topic := _topic(words)) is not None:
            terminal.choose(_take(words, "--color")[1])
            from octavo.cli.help import show

            self.exit(show(_below(self, words), topic))
        try:
            words, color = _take(words, "--color")
            terminal.choose(color)
            words, file = _take(words, "--config")
            below = self._read_file(file) if file is not None else []
            typed = self._parse(below + fold_dotted(words, self._find_json), namespace)
        except ConfigError as error:
            self.error(error.fact, error.hint)
        self.refuse(typed, vars(typed).pop(actions.REFUSED, {}))
        vars(typed).pop(actions.FROM_FILE, None)
        return typed

    def refuse(self, typed: argparse.Namespace, refused: dict[str, actions.Refusal]) -> None:
        """End the program if there is anything that octavo refuses."""
        if refused:
            self.error("\n".join(each.said for each in refused.values()), "leave out what is refused")

    def _parse(self, words: list[str], namespace: Any) -> argparse.Namespace:
        parsed: argparse.Namespace
        parsed, unknown = self.parse_known_args(words, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return parsed

    def _read_file(self, path: str) -> list[str]:
        """The words that the file stands for, with a mark after them. Until that mark is parsed, errors name the file."""
        from octavo.cli.config_file import read

        self._file = path
        return [*fold_dotted(read(path, self), self._find_json), actions.END_OF_FILE]

    def leave_file(self) -> None:
        """The words of the file are parsed."""
        self._file = ""

    def _find_json(self, flag: str) -> str:
        action = actions.find(self, flag)
        if action is None:
            raise ConfigError(self._unknown(flag))
        if not isinstance(action, actions.OptionAction) or action.kind != "json":
            raise ConfigError(f"{flag} takes no keys: its value is no JSON object")
        return "--" + action.dest.replace("_", "-")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"unexpected argument {word!r}"
        near = difflib.get_close_matches(word.split("=", maxsplit=1)[0], actions.known_flags(self), n=1, cutoff=0.6)
        return f"unknown argument {word}" + (f"; did you mean {near[0]}?" if near else "")

    def error(self, message: str, hint: str | None = None) -> NoReturn:
        """Say what is wrong and end with 2."""
        where = f"{self._file}: " if self._file else ""
        name = terminal.bold(f"{self.prog}:", sys.stderr)
        text = "\n".join(f"{name} {where}{line}" for line in message.splitlines())
        self.exit(2, f"{text}\nhint: {hint or f'{self.prog} --help=all lists the options'}\n")


def add_options(parser: argparse.ArgumentParser, cls: type, skip: tuple[str, ...] = ()) -> None:
    """Add every field of an options class to the parser, in its groups, and what vLLM has beside them.

    Absent options stay out of the namespace. The field `accepted` collects what is to be said about options that change nothing.
    """
    groups: dict[str, Any] = {}
    names = {f.name for c in (Options, ServerOptions) for f in typed_fields(c)}
    for f in typed_fields(cls):
        if f.name not in skip:
            actions.add_field(_group(parser, groups, f.metadata["group"]), f, is_shared=cls in (Options, ServerOptions))
    if cls not in (Options, ServerOptions):
        return
    for line in awaited.rows():
        if line.name in names or line.name in skip or (line.section == "Frontend") != (cls is ServerOptions):
            continue
        if "--" + line.name.replace("_", "-") not in parser._option_string_actions:  # a command may have its own of that name
            actions.add_line(_group(parser, groups, line.section), line)


def _group(parser: argparse.ArgumentParser, groups: dict[str, Any], title: str) -> Any:
    return groups.get(title) or groups.setdefault(title, parser.add_argument_group(title))


def _topic(words: list[str]) -> str | None:
    """What help is asked for: "" is the short one; None: none is."""
    for word in words:
        if word in ("-h", "--help"):
            return ""
        if word.startswith("--help="):
            return word.removeprefix("--help=")
    return None


def _below(parser: argparse.ArgumentParser, words: list[str]) -> argparse.ArgumentParser:
    """The parser of the command that the words lead to."""
    for word in words:
        parser = actions.commands_of(parser).get(word, parser)
    return parser


def _take(words: list[str], flag: str) -> tuple[list[str], str | None]:
    """The words without `flag VALUE` and `flag=VALUE`, and the last such value."""
    rest: list[str] = []
    value = None
    i = 0
    while i < len(words):
        name, equals, after = words[i].partition("=")
        if name != flag:
            rest.append(words[i])
        elif equals:
            value = after
        elif i + 1 == len(words):
            raise ConfigError(f"{flag} needs a value")
        else:
            i += 1
            value = words[i]
        i += 1
    return rest, value
