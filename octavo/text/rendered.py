"""A rendered chat in which it is still known what came with a message and may therefore not be a control token.

Before rendering, each special token's text inside a message is put between two noncharacters (Unicode sets them aside for a process's own
use), and a message that ends in the beginning of one gets such a mark behind it, so that two values set side by side cannot form one.
The marks are text to the template: trimming, searching and splitting still work. After rendering, what stands between two marks is text,
any other occurrence is the template's own, and all marks are taken out. This holds for templates that put out values whole, trimmed or
split; a template that removes characters from the middle of a value could still make a control token of what is left. A message that
brings such noncharacters itself loses them.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

OPEN, CLOSE = "\ufdd0", "\ufdd1"
STAND_IN = "\ufdd2"  # stands on both sides of a special token in the vocabulary that takes every other spelling of one as text
FINAL = "\ufdd3"  # ends the final message, when it is to be continued
BREAK = "\ufdd4"  # the texts on its two sides are tokenized apart
# names of the protocol and of JSON schemas: what they are called is not up to who writes a message
_NAMES = frozenset(
    [
        "role",
        "content",
        "name",
        "type",
        "text",
        "function",
        "arguments",
        "parameters",
        "properties",
        "required",
        "description",
        "items",
        "enum",
        "default",
        "title",
        "tool_calls",
        "tool_call_id",
        "id",
        "tools",
        "reasoning_content",
        "reasoning",
        "thinking",
    ]
)
_MARKS = (OPEN, CLOSE, STAND_IN, FINAL, BREAK)


class Controls:
    """The texts of a model's special tokens."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = sorted({text for text in texts if text})
        self.pattern = re.compile(_trie_pattern(self.texts) if self.texts else "(?!)")
        self._longest = max(map(len, self.texts), default=0)

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        return frozenset(text[:length] for text in self.texts for length in range(1, len(text)))

    @cached_property
    def _literal(self) -> re.Pattern[str]:
        return re.compile(f"{OPEN}({self.pattern.pattern}){CLOSE}|[{OPEN}{CLOSE}]")

    def mark(self, value: Any) -> Any:
        """A copy of a message (strings, lists, dicts) with the marks in it."""
        if isinstance(value, str):
            return self._mark_text(value)
        if isinstance(value, dict):
            return {self._mark_key(key): self.mark(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.mark(item) for item in value]
        return value

    def _mark_key(self, key: str) -> str:
        """A key that may be the name of something stays as it is, so that templates find it, unless a special token is in it."""
        is_name = key in _NAMES or (key.lstrip("$").isidentifier() and not self.pattern.search(key))
        return key if is_name else self._mark_text(key)

    def _mark_text(self, text: str) -> str:
        text = without_marks(text)
        marked = self.pattern.sub(f"{OPEN}\\g<0>{CLOSE}", text)
        body = marked.rstrip()
        for length in range(1, min(self._longest, len(body)) + 1):
            if body[-length:] in self._beginnings:
                return body + CLOSE + marked[len(body) :]
        return marked

    def split(self, marked: str) -> list[tuple[str, bool]]:
        """A rendered text in order: (what lies between marks, False), (a control token's text that is only text, True)."""
        parts = self._literal.split(marked)
        return [(part, index % 2 == 1) for index, part in enumerate(parts) if part]


class Rendered:
    """What was made of a conversation. `text` is what the model reads; `warnings` are for who sent it."""

    def __init__(self, marked: str, controls: Controls | None = None, warnings: Sequence[str] = ()) -> None:
        self._marked = marked
        self._controls = controls
        self.text = without_marks(marked)
        self.warnings = list(warnings)

    @property
    def pieces(self) -> "list[Rendered]":
        """The parts that are tokenized apart."""
        if BREAK not in self._marked:
            return [self]
        return [Rendered(piece, self._controls) for piece in self._marked.split(BREAK) if piece]

    @cached_property
    def _parts(self) -> list[tuple[str, bool]]:
        return [(self._marked, False)] if self._controls is None else self._controls.split(self._marked)

    @cached_property
    def is_marked(self) -> bool:
        """Whether the text, read plainly, has control tokens that the template did not write."""
        if self._controls is None or len(self._marked) == len(self.text):
            return False
        find = self._controls.pattern.findall
        return any(literal for _, literal in self._parts) or len(find(self.text)) != sum(len(find(part)) for part, _ in self._parts)

    def with_control(self, replace: Callable[[re.Match[str]], str]) -> str:
        """The text, with each control token that the template wrote put through `replace`."""
        if self._controls is None:
            return self.text
        pattern = self._controls.pattern
        return "".join(part if literal else pattern.sub(replace, part) for part, literal in self._parts)


def without_marks(text: str) -> str:
    for mark in _MARKS:  # translate() is slow, and nothing else runs meanwhile
        text = text.replace(mark, "")
    return text


def _trie_pattern(texts: list[str]) -> str:
    """One pattern for many texts, the longest first, that looks at each character once: thousands of alternatives cost no more than one."""
    root: dict[str, Any] = {}
    for text in texts:
        node = root
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    return _node_pattern(root)


def _node_pattern(node: dict[str, Any]) -> str:
    run = ""
    while len(node) == 1 and "" not in node:  # a run without a branch, without recursion
        character, node = next(iter(node.items()))
        run += re.escape(character)
    branches = [re.escape(character) + _node_pattern(child) for character, child in node.items() if character]
    if not branches:
        return run
    return f"{run}(?:{'|'.join(branches)})" + ("?" if "" in node else "")
