"""JSON as models write it, read character by character: it goes out as it came in, and what is no JSON is refused.

Put right in passing: control characters and unknown escapes in strings, and Python's words for true, false and null.
"""

import json
import re
from collections.abc import Callable

from octavo.parsing.run import Reading, Run

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMERIC = re.compile(r"[-+0-9.eE]*")
_LETTERS = re.compile(r"[A-Za-z]*")
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_PLAIN = re.compile('[^"\\\\\x00-\x1f\ud800-\udfff]*')
_HEX = re.compile(r"[0-9A-Fa-f]")
_CLOSER = {"{": "}", "[": "]"}

Put = Callable[[str], None]


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def read_value(run: Run, put: Put) -> Reading[bool]:
    """Reads one value at the place reached, white space before it included. False: this is no JSON."""
    open_: list[str] = []
    expected = "value"
    while True:
        put((yield from run.blank()))
        character = yield from run.peek()
        if open_ and character == _CLOSER[open_[-1]] and expected in ("first", "comma"):
            put(character)
            run.at += 1
            open_.pop()
            expected = "comma"
        elif expected == "comma":
            if character != ",":
                return False
            put(character)
            run.at += 1
            expected = "key" if open_[-1] == "{" else "value"
        elif expected == "key" or (expected == "first" and open_[-1] == "{"):
            if character != '"':
                return False
            yield from read_string(run, put)
            put((yield from run.blank()))
            if (yield from run.peek()) != ":":
                return False
            put(":")
            run.at += 1
            expected = "value"
        elif character in _CLOSER:
            put(character)
            run.at += 1
            open_.append(character)
            expected = "first"
        else:
            if not (yield from _read_scalar(run, put, character)):
                return False
            expected = "comma"
        if not open_:
            return True


def read_string(run: Run, put: Put) -> Reading[None]:
    """Reads a string at its opening quote."""
    put('"')
    run.at += 1
    while True:
        found = _PLAIN.match(run.text, run.at)
        assert found is not None
        put(found[0])
        run.at = found.end()
        if run.at == len(run.text):
            yield from run.more()
            continue
        character = run.text[run.at]
        run.at += 1
        if character == '"':
            put('"')
            return
        if character == "\\":
            put((yield from _read_escape(run)))
        else:  # a token, or a control character
            put(quoted(run.alphabet.argument(character))[1:-1])


def _read_escape(run: Run) -> Reading[str]:
    character = yield from run.peek()
    if character in '"\\/bfnrt':
        run.at += 1
        return "\\" + character
    if character != "u":
        return "\\\\"  # the character itself comes next
    run.at += 1
    start = run.at
    for _ in range(4):
        if not _HEX.match((yield from run.peek())):
            run.at = start
            return "\\\\u"
        run.at += 1
    return "\\u" + run.text[start : run.at]


def _read_scalar(run: Run, put: Put, character: str) -> Reading[bool]:
    if character == '"':
        yield from read_string(run, put)
        return True
    if character.isascii() and character.isalpha():
        word = yield from run.take(_LETTERS)
        yield from run.peek()  # what ends it must have come
        put(_WORDS.get(word, ""))
        return word in _WORDS
    number = yield from run.take(_NUMERIC)
    yield from run.peek()
    put(number)
    return NUMBER.fullmatch(number) is not None
