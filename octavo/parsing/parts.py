"""What a call is written of: a format's `call` is a row of these parts and of strings, which stand for themselves.

White space before a string is passed. Each part has `read`, which gives False where the text is not of its kind.
"""

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from octavo.parsing import brace_text, json_text, python_text
from octavo.parsing.run import Reading, Run

_NAME = re.compile("[^\\s<>(){}\\[\\]\"'|,;=\ud800-\udfff]*")
PLAIN = re.compile("[^<>\n\ud800-\udfff]*")  # what a name, a key or a type holds in a call that is quoted
_DIGITS = re.compile(r":[0-9]+$")


class Outer(Protocol):
    """What stands around a call's own row: the format that it is a part of. The words are markers, "" where there is none."""

    @property
    def open(self) -> str: ...

    @property
    def close(self) -> str: ...

    @property
    def first_words(self) -> Sequence[str]: ...

    @property
    def call_word(self) -> str: ...

    def read(self, run: Run) -> Reading[bool]: ...


class Call:
    """The call that is being read: its name and arguments go out as soon as both are known."""

    def __init__(self, run: Run, outer: Outer | None = None) -> None:
        self._run = run
        self.outer = outer
        self._has_started = False
        self._waiting: list[str] = []
        self.name = ""
        self.call_id: str | None = None
        self.has_arguments = False
        self.is_many = False  # its part has made calls of its own

    @property
    def parameters(self) -> dict[str, Any]:
        tool = self._run.tools.get(self.name)
        return tool.parameters if tool else {}

    def named(self, name: str) -> bool:
        """Takes the name; False if the request offers no such tool."""
        self.name = name
        return self._run.offers(name)

    def put(self, text: str) -> None:
        """More of the arguments: JSON text."""
        self.has_arguments = True
        if self.name and not self._has_started:
            self._has_started = True
            self._run.start_call(self.name, self.call_id)
            self._run.argue("".join(self._waiting))
        if self._has_started:
            self._run.argue(text)
        else:
            self._waiting.append(text)

    def finish(self) -> bool:
        """The call is whole. Without arguments it has the empty object."""
        if not self.name:
            return False
        self.put("" if self.has_arguments else "{}")
        self._run.end_call()
        return True


class Part(Protocol):
    def read(self, run: Run, call: Call) -> Reading[bool]:
        """Reads the part at the place reached."""
        ...


Row = Sequence["Part | str"]


def read_row(run: Run, call: Call, row: Row) -> Reading[bool]:
    """Reads parts one after the other."""
    for part in row:
        if isinstance(part, str):
            yield from run.blank()
            if not (yield from run.literal(run.marker(part))):
                return False
        elif not (yield from part.read(run, call)):
            return False
    return True


@dataclass(frozen=True)
class Name:
    """The tool's name. until: the text that ends it (default: the first character that names do not have).

    is_id: it stands within an id like `functions.name:0`, which is kept.
    """

    until: str = ""
    is_id: bool = False
    is_escaped: bool = False

    def read(self, run: Run, call: Call) -> Reading[bool]:
        yield from run.blank()
        if self.until:
            word = (yield from run.until(run.marker(self.until))).strip()
            if run.is_quoting and not PLAIN.fullmatch(word):
                return False
        else:
            word = yield from run.take(_NAME)
            yield from run.peek()  # what ends it must have come
        if self.is_escaped:
            word = html.unescape(word)
        if self.is_id:
            call.call_id = word
            if not run.offers(word) or not run.tools:
                word = _DIGITS.sub("", word.removeprefix("functions."))
        return call.named(word)


@dataclass(frozen=True)
class Id:
    """The id that the model gives the call."""

    def read(self, run: Run, call: Call) -> Reading[bool]:
        call.call_id = (yield from run.take(_NAME)) or None
        return True


@dataclass(frozen=True)
class Until:
    """Anything up to a marker, and the marker."""

    marker: str

    def read(self, run: Run, call: Call) -> Reading[bool]:
        yield from run.until(run.marker(self.marker))
        return True


@dataclass(frozen=True)
class Maybe:
    """A row that may be missing; it is there if its first string is."""

    row: Row

    def read(self, run: Run, call: Call) -> Reading[bool]:
        start = run.at
        yield from run.blank()
        first = self.row[0]
        assert isinstance(first, str)
        if (yield from run.is_at_end()) or not (yield from run.literal(run.marker(first))):
            run.at = start
            return True
        return (yield from read_row(run, call, self.row[1:]))


@dataclass(frozen=True)
class OneOf:
    """The first row that fits by what it begins with: a string, or a part that says which characters it begins with."""

    rows: Sequence[Row]

    def read(self, run: Run, call: Call) -> Reading[bool]:
        for row in self.rows:
            start = run.at
            yield from run.blank()
            first = row[0]
            if isinstance(first, str):
                fits = yield from run.literal(run.marker(first))
                rest = row[1:]
            else:
                begins = getattr(first, "begins", "")
                fits, rest = not begins or (yield from run.peek()) in begins, row
            if fits:
                return (yield from read_row(run, call, rest))
            run.at = start
        return False


@dataclass(frozen=True)
class Arguments:
    """The arguments as a JSON object."""

    begins = "{"

    def read(self, run: Run, call: Call) -> Reading[bool]:
        yield from run.blank()
        return (yield from run.peek()) == "{" and (yield from json_text.read_value(run, call.put))


@dataclass(frozen=True)
class Object:
    """Name and arguments as members of one JSON object, in whichever order; other members are passed.

    is_bare: nothing marks it as a call, so without arguments, or with a member of another name, it is none.
    """

    names: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    ids: tuple[str, ...] = ("id",)
    is_bare: bool = False
    begins = "{"

    def read(self, run: Run, call: Call) -> Reading[bool]:
        fits = yield from self._read_members(run, call)
        return fits and bool(call.name) and (call.has_arguments or not self.is_bare)

    def _read_members(self, run: Run, call: Call) -> Reading[bool]:
        yield from run.blank()
        if not (yield from run.literal("{")):
            return False
        num_members = 0
        while True:
            yield from run.blank()
            if (yield from run.literal("}")):
                return True
            if num_members and not (yield from run.literal(",")):
                return False
            yield from run.blank()
            if (yield from run.peek()) != '"':
                return False
            key = yield from _read_text(run)
            yield from run.blank()
            if not (yield from run.literal(":")):
                return False
            yield from run.blank()
            if not (yield from self._read_member(run, call, key)):
                return False
            num_members += 1

    def _read_member(self, run: Run, call: Call, key: str) -> Reading[bool]:
        character = yield from run.peek()
        if key in self.arguments and not call.has_arguments:
            if character == "{":
                return (yield from json_text.read_value(run, call.put))
            if character == '"':  # written twice over
                text = (yield from _read_text(run)).strip()
                call.put(text or "{}")
                return not text or _is_object(text)
            return (yield from run.literal("null"))
        if character == '"' and key in self.names and not call.name:
            return call.named((yield from _read_text(run)))
        if character == '"' and key in self.ids:
            call.call_id = yield from _read_text(run)
            return True
        if character == "{" and key == "function":
            return (yield from self._read_members(run, call))
        if self.is_bare and key not in (*self.ids, *self.names, *self.arguments, "type", "function"):
            return False
        return (yield from json_text.read_value(run, lambda text: None))


@dataclass(frozen=True)
class Objects:
    """Several calls: objects one after the other, in an array or not."""

    member: Object = Object()
    separators: str = ",;"
    begins = "[{"

    def read(self, run: Run, call: Call) -> Reading[bool]:
        call.is_many = True
        yield from run.blank()
        is_array = yield from run.literal("[")
        num_calls = 0
        while True:
            start = run.at
            yield from run.blank()
            if is_array and (yield from run.literal("]")):
                return True
            if not is_array and (yield from run.is_at_end()):
                return num_calls > 0
            if num_calls and (yield from run.peek()) in self.separators:
                run.at += 1
                yield from run.blank()
            elif num_calls and is_array:
                return False
            if num_calls and not is_array and ((yield from run.is_at_end()) or run.text[run.at] != "{"):
                run.at = start
                return True
            own, mark, is_call = Call(run, call.outer), run.mark(), False
            try:
                is_call = yield from self.member.read(run, own)
            finally:  # calls before it stand; of one that is none, or has no end, nothing does
                if is_call:
                    run.release(mark)
                elif run.back(mark):
                    run.at = start
            if not is_call:
                return False
            own.finish()
            num_calls += 1
            run.commit()


@dataclass(frozen=True)
class PythonCalls:
    """Calls as Python writes them: a list, or (bare) one after the other."""

    begins = "["
    is_list: bool = True

    def read(self, run: Run, call: Call) -> Reading[bool]:
        call.is_many = True
        yield from run.blank()
        if self.is_list and not (yield from run.literal("[")):
            return False
        num_calls = 0
        while True:
            start = run.at
            yield from run.blank()
            if self.is_list and num_calls and (yield from run.literal("]")):
                return True
            if num_calls and self.is_list:
                if not (yield from run.literal(",")):
                    return False
                yield from run.blank()
                if (yield from run.literal("]")):
                    return True
            own = Call(run, call.outer)
            name = "" if not self.is_list and (yield from run.is_at_end()) else (yield from python_text.read_name(run))
            if not name and num_calls and not self.is_list:
                run.at = start
                return True
            if not name or not own.named(name):
                return False
            arguments = yield from python_text.read_arguments(run, own.parameters)
            if arguments is None:
                return False
            own.put(arguments)
            own.finish()
            num_calls += 1
            run.commit()


@dataclass(frozen=True)
class Braces:
    """The arguments as an object with bare keys; quote: the marker before and after a string."""

    quote: str
    begins = "{"

    def read(self, run: Run, call: Call) -> Reading[bool]:
        arguments = yield from brace_text.read_object(run, run.marker(self.quote))
        if arguments is None:
            return False
        call.put(arguments)
        return True


def _read_text(run: Run) -> Reading[str]:
    """Reads a JSON string and gives what it says."""
    parts: list[str] = []
    yield from json_text.read_string(run, parts.append)
    return str(json.loads("".join(parts)))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
