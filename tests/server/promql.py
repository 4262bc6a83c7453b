"""PromQL, as far as telling which series and labels an expression reads."""

import re
from dataclasses import dataclass

_WORDS = frozenset(("and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "inf", "nan"))
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)\s*(\{[^}]*\})?(\s*\()?")
_MATCHER = re.compile(r'([A-Za-z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Selector:
    """A series and what is asked of its labels: (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]


def selectors(expression: str) -> list[Selector]:
    """Every series that the expression reads."""
    rest = _GROUPING.sub(" ", re.sub(r"\[[^\]]*\]", " ", expression))
    found = []
    for name, braces, call in _SELECTOR.findall(rest):
        if not call and name.lower() not in _WORDS and not re.fullmatch(r"e\d*|\d.*", name):
            found.append(Selector(name, tuple(_MATCHER.findall(braces))))
    return found


def grouping_labels(expression: str) -> set[str]:
    """The labels that the expression groups or joins by."""
    return {label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",") if label.strip()}
