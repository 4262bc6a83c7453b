"""A rendered chat in which it is still known what came with a message and may therefore not be a control token.

Before rendering, each special token's text inside a message is put between two noncharacters (Unicode sets them aside for a process's own
use), and a message that ends in the beginning of one gets such a mark behind it, so that two values set side by side cannot form one.
The marks are text to the template: trimming, searching and splitting still work. After rendering, what stands between two marks is text,
any other occurrence is the template's own, and all marks are taken out. This holds for templates that put out values whole, trimmed or
split; a template that removes characters from the middle of a value could still make a control token of what is left.
"""

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

OPEN, CLOSE = "\ufdd0", "\ufdd1"


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
        """A copy of a message (strings, lists, dicts) with the marks in it; keys are left alone."""
        if isinstance(value, str):
            return self._mark_text(value)
        if isinstance(value, dict):
            return {key: self.mark(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.mark(item) for item in value]
        return value

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
    """What a template made of a conversation. `text` is what the model reads."""

    def __init__(self, marked: str, controls: Controls | None = None) -> None:
        self._marked = marked
        self._controls = controls
        self.text = without_marks(marked) if controls is not None else marked

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
    return text.replace(OPEN, "").replace(CLOSE, "")  # translate() is slow, and nothing else runs meanwhile


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
