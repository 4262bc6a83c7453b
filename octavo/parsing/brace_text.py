"""Objects with bare keys and strings between markers, as the Gemma models write them: {city:<mark>Paris<mark>,days:3}, read as JSON."""

import re

from octavo.parsing.json_text import NUMBER, quoted, read_string
from octavo.parsing.run import Reading, Run

_KEY = re.compile('[^:{}\\[\\],"\ud800-\udfff]*')
_BARE = re.compile('[^,{}\\[\\]"\ud800-\udfff]*')
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
MAX_DEPTH = 100


def read_value(run: Run, quote: str, depth: int = 0) -> Reading[str | None]:
    """Reads one value and gives its JSON; None if this is none. quote: the marker that stands before and after a string."""
    yield from run.blank()
    if depth > MAX_DEPTH:
        return None
    if (yield from run.literal(quote)):
        return quoted(run.alphabet.argument((yield from run.until(quote))))
    character = yield from run.peek()
    if character == "{":
        return (yield from read_object(run, quote, depth))
    if character == "[":
        return (yield from _read_list(run, quote, depth))
    if character == '"':
        parts: list[str] = []
        yield from read_string(run, parts.append)
        return "".join(parts)
    bare = (yield from run.take(_BARE)).strip()
    yield from run.peek()  # what ends it must have come
    return _WORDS.get(bare) or (bare if NUMBER.fullmatch(bare) else quoted(bare) if bare else None)


def read_object(run: Run, quote: str, depth: int = 0) -> Reading[str | None]:
    """Reads an object at its opening brace."""
    if not (yield from run.literal("{")):
        return None
    members: list[str] = []
    while True:
        yield from run.blank()
        if (yield from run.literal("}")):
            return "{" + ", ".join(members) + "}"
        if members and not (yield from run.literal(",")):
            return None
        key = yield from _read_key(run, quote)
        if not key or not (yield from run.literal(":")):
            return None
        value = yield from read_value(run, quote, depth + 1)
        if value is None:
            return None
        members.append(f"{key}: {value}")


def _read_key(run: Run, quote: str) -> Reading[str]:
    yield from run.blank()
    key = ""
    if (yield from run.literal(quote)):
        key = quoted(run.alphabet.argument((yield from run.until(quote))))
    elif (yield from run.peek()) == '"':
        parts: list[str] = []
        yield from read_string(run, parts.append)
        key = "".join(parts)
    else:
        bare = (yield from run.take(_KEY)).strip()
        key = quoted(bare) if bare else ""
    yield from run.blank()
    return key


def _read_list(run: Run, quote: str, depth: int) -> Reading[str | None]:
    run.at += 1
    items: list[str] = []
    while True:
        yield from run.blank()
        if (yield from run.literal("]")):
            return "[" + ", ".join(items) + "]"
        if items and not (yield from run.literal(",")):
            return None
        value = yield from read_value(run, quote, depth + 1)
        if value is None:
            return None
        items.append(value)
