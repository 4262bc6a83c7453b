"""Calls as Python writes them, f(city="Paris", days=[1, 2]), read as JSON. Nothing is evaluated."""

import re
from collections.abc import Mapping
from typing import Any

from octavo.parsing.alphabet import Alphabet
from octavo.parsing.json_text import NUMBER, quoted
from octavo.parsing.run import Cut, Reading, Run

_NAME = re.compile(r"[^\W\d][\w.\-]*")
_NAME_LETTERS = re.compile(r"[\w.\-]*")
_KEYWORD = re.compile(r"\w*")
_NUMERIC = re.compile(r"[-+0-9a-zA-Z_.]*")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "0": "\0",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_GROUPED = re.compile(r"[0-9A-Za-z.+-]+(?:_[0-9A-Za-z.+-]+)*")
_DECIMAL = re.compile(r"(?P<whole>[0-9]*)(?P<point>\.(?P<fraction>[0-9]*))?(?P<power>(?:[eE][-+]?[0-9]+)?)")
_BASES = {"0x": re.compile(r"[0-9A-Fa-f]+"), "0o": re.compile(r"[0-7]+"), "0b": re.compile(r"[01]+")}
_PLAIN = re.compile("[^\"'\\\\]*")
MAX_DEPTH = 100


def read_name(run: Run) -> Reading[str]:
    """Reads a function's name; "" if none stands here."""
    word = yield from run.take(_NAME_LETTERS)
    if word:
        yield from run.peek()  # what ends it must have come
    return word if _NAME.fullmatch(word) else ""


def read_arguments(run: Run, parameters: Mapping[str, Any]) -> Reading[str | None]:
    """Reads arguments from their opening parenthesis and gives a JSON object; None if these are none.

    Those without a keyword take the names of the schema's properties, in order.
    """
    if not (yield from run.literal("(")):
        return None
    properties = parameters.get("properties")
    names = iter(properties if isinstance(properties, Mapping) else ())
    members: dict[str, str] = {}
    while True:
        yield from run.blank()
        if (yield from run.literal(")")):
            return "{" + ", ".join(f"{quoted(key)}: {value}" for key, value in members.items()) + "}"
        if members:
            if not (yield from run.literal(",")):
                return None
            yield from run.blank()
            if (yield from run.literal(")")):
                return "{" + ", ".join(f"{quoted(key)}: {value}" for key, value in members.items()) + "}"
        key = yield from _read_keyword(run)
        if key is None:
            key = next(names, None)
        value = yield from read_literal(run)
        if key is None or value is None or key in members:
            return None
        members[key] = value


def _read_keyword(run: Run) -> Reading[str | None]:
    """The keyword before `=`, passed; None, and nothing passed, if the argument has none."""
    start = run.at
    word = yield from run.take(_KEYWORD)
    yield from run.blank()
    if word and not word[0].isdigit() and (yield from run.literal("=")):
        return word
    run.at = start
    return None


def read_literal(run: Run, depth: int = 0) -> Reading[str | None]:
    """Reads a literal and gives its JSON; None if it is none."""
    yield from run.blank()
    character = yield from run.peek()
    if depth > MAX_DEPTH:
        return None
    if character in "\"'":
        text = yield from read_string(run)
        return quoted(text)
    if character in "[(":
        return (yield from _read_sequence(run, "]" if character == "[" else ")", depth))
    if character == "{":
        return (yield from _read_dict(run, depth))
    word = yield from run.take(_NUMERIC)
    yield from run.peek()  # what ends it must have come
    return _WORDS.get(word) or _number(word)


def _number(word: str) -> str | None:
    """A number as JSON writes it; None if it is none."""
    if NUMBER.fullmatch(word):
        return word
    sign, digits = ("-" if word[:1] == "-" else ""), word.lstrip("+-")
    if len(word) - len(digits) > 1 or not _GROUPED.fullmatch(digits):
        return None
    digits = digits.replace("_", "")
    if digits[:2].lower() in _BASES:
        return sign + str(int(digits, 0)) if _BASES[digits[:2].lower()].fullmatch(digits[2:]) else None
    found = _DECIMAL.fullmatch(digits)
    if found is None or not (found["whole"] or found["fraction"]):
        return None
    point = "" if found["point"] is None else "." + (found["fraction"] or "0")
    return sign + (found["whole"].lstrip("0") or "0") + point + found["power"]


def whole_value(text: str) -> str | None:
    """The JSON of a text that is one literal; None if it is none."""
    run = Run(Alphabet((), lambda spelling: None), (), whole_calls=True)
    run.text, run.has_ended = text, True
    reading = read_literal(run)
    try:
        while True:
            next(reading)
    except StopIteration as done:
        value: str | None = done.value
        return None if text[run.at :].strip() else value
    except Cut:
        return None


def read_string(run: Run) -> Reading[str]:
    """Reads a string at its opening quote, one or three."""
    quote = run.text[run.at]
    run.at += 1
    if (yield from run.literal(quote)):
        if not (yield from run.is_at_end()) and run.text[run.at] == quote:
            run.at += 1
            quote *= 3
        else:
            return ""
    parts: list[str] = []
    while True:
        parts.append(run.alphabet.argument((yield from run.take(_PLAIN))))
        if (yield from run.peek()) == "\\":
            parts.append((yield from _read_escape(run)))
        elif (yield from _closes(run, quote)):
            return "".join(parts)
        else:
            parts.append(run.text[run.at])
            run.at += 1


def _closes(run: Run, quote: str) -> Reading[bool]:
    return (yield from run.literal(quote))


def _read_escape(run: Run) -> Reading[str]:
    run.at += 1
    character = yield from run.peek()
    if character in _HEX_DIGITS:
        start, count = run.at + 1, _HEX_DIGITS[character]
        while len(run.text) < start + count:
            yield from run.more()
        digits = run.text[start : start + count]
        if re.fullmatch(r"[0-9A-Fa-f]+", digits) and int(digits, 16) <= 0x10FFFF:
            run.at = start + count
            code = int(digits, 16)
            return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
        return "\\"
    if character in _ESCAPES:
        run.at += 1
        return _ESCAPES[character]
    return "\\"  # an unknown escape is its own two characters


def _read_sequence(run: Run, closer: str, depth: int) -> Reading[str | None]:
    run.at += 1
    items: list[str] = []
    while True:
        yield from run.blank()
        if (yield from run.literal(closer)):
            return "[" + ", ".join(items) + "]"
        if items:
            if not (yield from run.literal(",")):
                return None
            yield from run.blank()
            if (yield from run.literal(closer)):
                return "[" + ", ".join(items) + "]"
        value = yield from read_literal(run, depth + 1)
        if value is None:
            return None
        items.append(value)


def _read_dict(run: Run, depth: int) -> Reading[str | None]:
    run.at += 1
    members: list[str] = []
    while True:
        yield from run.blank()
        if (yield from run.literal("}")):
            return "{" + ", ".join(members) + "}"
        if members:
            if not (yield from run.literal(",")):
                return None
            yield from run.blank()
            if (yield from run.literal("}")):
                return "{" + ", ".join(members) + "}"
        key = yield from read_literal(run, depth + 1)
        yield from run.blank()
        if key is None or key[0] in "[{" or not (yield from run.literal(":")):
            return None
        value = yield from read_literal(run, depth + 1)
        if value is None:
            return None
        members.append(f"{key if key[0] == chr(34) else quoted(key)}: {value}")
