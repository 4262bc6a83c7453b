"""Regular expressions: those of a request, as they may stand in a Lark grammar."""

import llguidance


def to_lark_regex(pattern: str) -> str:
    """The pattern as it stands between the slashes of a Lark terminal. What is wrong with it is found when the grammar is compiled."""
    text: str = llguidance.regex_to_lark(pattern, use_ascii="")
    return text
