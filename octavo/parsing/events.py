"""What goes into a parser and what comes out: pieces of a model's text in, events out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Piece:
    """What the detokenizer gives for one token, or, where there are no tokens, for a stretch of text.

    text: with special tokens spelled out; "" while a character is torn. is_special: a special token of the vocabulary; one that is no
    marker of the format shows in arguments only, never in content or reasoning.
    """

    text: str
    token_id: int | None = None
    is_special: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the request offers. parameters: its JSON schema; strict: arguments must obey it."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call begins. index counts the calls of this answer from 0; call_id is the id that the model wrote, where its format has one."""

    index: int
    name: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of a call's arguments: JSON text; the pieces of one call joined are a JSON object once its ToolEnd has come."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """A call is whole. One that the end of the text cut off never gets this event."""

    index: int


Event = Reasoning | Content | ToolCall | Arguments | ToolEnd


class Parser(Protocol):
    """One answer's parser. The events joined do not depend on how the text was cut into pieces or feeds."""

    def feed(self, pieces: Sequence[Piece]) -> list[Event]:
        """What these pieces make certain."""
        ...

    def finish(self, cut_off: bool = False) -> list[Event]:
        """What was held back, at the end of the text.

        cut_off: the length limit ended it (finish_reason "length"), so that a call without an end was on its way, and is dropped rather
        than shown as text. Where the model stopped by itself, what is no whole call is content.
        """
        ...


def join(events: Sequence[Event]) -> list[Event]:
    """The same events with neighbours of a kind made one: what a client sees that adds the deltas up."""
    joined: list[Event] = []
    for _, group in groupby(events, lambda event: (type(event), getattr(event, "index", None))):
        first, *more = group
        if not more or isinstance(first, ToolCall | ToolEnd):
            joined += [first, *more]
            continue
        text = "".join(event.text for event in (first, *more) if not isinstance(event, ToolCall | ToolEnd))
        joined.append(Arguments(first.index, text) if isinstance(first, Arguments) else type(first)(text))
    return joined
