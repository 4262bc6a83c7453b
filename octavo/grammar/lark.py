"""Grammars as requests write them: Lark as it is, EBNF (GBNF's dialect: `root ::= ...`) translated to it."""

import json
import re

from llguidance.gbnf_to_lark import gbnf_to_lark

from octavo.errors import RequestError

FIELD = "structured_outputs"
MAX_SIZE = 262_144  # characters
MAX_NESTING = 256  # parentheses inside each other
_LARK_RULE = re.compile(r"^\s*[?!]?[a-zA-Z_][\w\-]*(\[[^\]]*\]|\{[^}]*\}|\.-?\d+)*\s*:(?!:=)", re.MULTILINE)
# a class that is repeated, and the first sign of the text after it
_RUN = re.compile(r'/(\[(?:\\.|[^\]\\])*\])/([*+])(?= "(\\.|[^"\\]))')
_EBNF_RULE = re.compile(r"^\s*[a-zA-Z_][\w\-]*\s*::=", re.MULTILINE)


def literal(text: str) -> str:
    """A text as a Lark terminal."""
    return json.dumps(text, ensure_ascii=False)


def is_ebnf(text: str) -> bool:
    return _EBNF_RULE.search(text) is not None


def to_lark(text: str) -> str:
    """A grammar in Lark. Raises RequestError for one that is neither Lark nor EBNF; what else is wrong is found when it is compiled."""
    if len(text) > MAX_SIZE:
        raise _wrong(f"it has {len(text)} characters, and {MAX_SIZE} is the most")
    if _nesting(text) > MAX_NESTING:
        raise _wrong(f"parentheses are nested more than {MAX_NESTING} deep")
    if not is_ebnf(text):
        if not _LARK_RULE.search(text):
            raise _wrong("it has no rule: neither Lark (`start: ...`) nor EBNF (`root ::= ...`)")
        return text
    try:
        translated: str = gbnf_to_lark(text)
    except Exception as error:  # the translator raises bare exceptions
        raise _wrong(f"it is no EBNF: {error}") from None
    return _RUN.sub(_as_terminal, translated)


def _as_terminal(run: re.Match[str]) -> str:
    """A run of characters of one class, which the translator has as so many terminals, as one, if what follows cannot be part of it."""
    signs, count, following = run.groups()
    try:
        first = json.loads(f'"{following}"')
        is_apart = not re.fullmatch(signs, first)
    except (ValueError, re.error):
        return run[0]
    if not is_apart:
        return run[0]
    return f"/{signs}+/" if count == "+" else f"/{signs}+/?"


def _nesting(text: str) -> int:
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest


def _wrong(fact: str) -> RequestError:
    return RequestError(f"{FIELD}.grammar: {fact}", parameter=FIELD)
