"""Regular expressions for xgrammar: signs that it takes for others are written otherwise, or refused."""

import re

from octavo.errors import RequestError

FIELD = "structured_outputs"
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_COUNT = re.compile(r"\{\d+(?:,\d*)?\}")
_ESCAPES = frozenset("dwsSnrtfv")
_ODD = ("[", "&&", "--", "~~")  # in a class: sets within sets


def to_xgrammar(pattern: str, where: str) -> str:
    """The pattern for xgrammar. Raises RequestError for what it would read otherwise."""
    parts: list[str] = []
    at = depth = 0
    begins = True  # an alternative begins here, outside all groups
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            part = _escape(pattern[at : at + 2], where)
        elif sign == "[":
            part = _class(pattern, at, where)
        elif sign == "(" and pattern.startswith("(?", at) and not pattern.startswith("(?:", at):
            raise _refusal(where, pattern[at : at + 4])
        elif sign == "^" and not begins:
            raise _refusal(where, "^ amid a pattern")
        elif sign == "$" and not (depth == 0 and (at + 1 == len(pattern) or pattern[at + 1] == "|")):
            raise _refusal(where, "$ amid a pattern")
        elif sign == "{" and not _COUNT.match(pattern, at):
            raise _refusal(where, "{")
        else:
            part = sign
        depth += (part == "(") - (part == ")")
        begins = depth == 0 and part == "|"
        parts.append(r"[^\n]" if part == "." else part)
        at += len(part)
    return "".join(parts)


def _escape(part: str, where: str) -> str:
    if len(part) < 2 or (part[1].isalnum() and part[1] not in _ESCAPES):
        raise _refusal(where, part)
    return part


def _class(pattern: str, at: int, where: str) -> str:
    found = _CLASS.match(pattern, at)
    if found is None:
        raise _refusal(where, "[")
    part = found[0]
    for escape in re.findall(r"\\(?:.|$)", part, re.DOTALL):
        _escape(escape, where)
    if any(odd in part[1:] for odd in _ODD):
        raise _refusal(where, part)
    return part


def _refusal(where: str, sign: str) -> RequestError:
    return RequestError(
        f"{FIELD}.{where}: xgrammar does not read {sign!r} in a regular expression as others do",
        "write it otherwise, or start with the back end auto or guidance",
        FIELD,
    )
