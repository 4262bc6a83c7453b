"""Terminal: whether text is coloured, and how."""

from typing import TextIO

from octavo import environment
from octavo.errors import ConfigError

CHOICES = ("auto", "always", "never")


def choose(color: str | None) -> None:
    """--color: over NO_COLOR and FORCE_COLOR, for this process, its libraries and its children."""
    if color is None or color == "auto":
        return
    if color not in CHOICES:
        raise ConfigError(f"--color {color!r}: choose from {', '.join(CHOICES)}")
    environment.force_color(color == "always")


def bold(text: str, stream: TextIO) -> str:
    return _escaped(text, "1", stream)


def faint(text: str, stream: TextIO) -> str:
    return _escaped(text, "2", stream)


def colored(text: str, stream: TextIO) -> str:
    return _escaped(text, "36", stream)


def _escaped(text: str, code: str, stream: TextIO) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if environment.wants_color(stream.isatty()) else text
