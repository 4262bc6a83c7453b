"""Arguments as elements within elements, each tag after a marker token (MiniMax M3). What one is, its schema says, else its form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from octavo.parsing.json_text import quoted
from octavo.parsing.parts import Call
from octavo.parsing.run import Reading, Run
from octavo.parsing.values import allowed_types, as_json, property_schema

_NAME = re.compile("[^<>\ud800-\udfff]*")
MAX_DEPTH = 100


class _Known(NamedTuple):
    """What the tool says of a value: its schema, and the one that references in it start from."""

    schema: Any
    root: Any

    @property
    def types(self) -> frozenset[str]:
        return allowed_types(self.schema, self.root)

    def member(self, name: str) -> "_Known":
        return _Known(property_schema(self.schema, name) if isinstance(self.schema, Mapping) else None, self.root)

    def item(self) -> "_Known":
        return _Known(self.schema.get("items") if isinstance(self.schema, Mapping) else None, self.root)


@dataclass(frozen=True)
class Elements:
    """An element per argument, up to `end`: MARK<KEY> VALUE MARK</KEY>, where a value is text or elements.

    mark: the marker before each tag. item: the name of a list's elements.
    """

    mark: str
    end: str
    item: str = "item"

    def read(self, run: Run, call: Call) -> Reading[bool]:
        mark = run.marker(self.mark)
        known = _Known(call.parameters, call.parameters)
        call.put("{")
        seen: set[str] = set()
        while True:
            yield from run.blank()
            if not (yield from run.literal(mark)):
                return False
            if (yield from run.literal(self.end)):
                call.put("}")
                return True
            name = yield from self._read_tag(run)
            value = (yield from self._read_value(run, mark, name, known.member(name), 0)) if name else None
            if value is None:
                return False
            if name not in seen:
                call.put((", " if seen else "") + f"{quoted(name)}: {value}")
                seen.add(name)

    def _read_tag(self, run: Run) -> Reading[str]:
        """Reads an opening tag after its marker; "" if it is none."""
        if not (yield from run.literal("<")):
            return ""
        name = yield from run.take(_NAME)
        return name if (yield from run.literal(">")) and not name.startswith("/") else ""

    def _read_value(self, run: Run, mark: str, name: str, known: _Known, depth: int) -> Reading[str | None]:
        """Reads up to the closing tag, and it; gives the value's JSON, None if there is no such tag."""
        text = ""
        while True:
            text += yield from run.until(mark)
            if (yield from run.literal(f"</{name}>")):
                return _scalar(run.alphabet.argument(text), known)
            if not text.strip() and depth < MAX_DEPTH and (yield from run.peek()) == "<":
                return (yield from self._read_children(run, mark, name, known, depth))
            text += mark  # not a tag: part of the text

    def _read_children(self, run: Run, mark: str, name: str, known: _Known, depth: int) -> Reading[str | None]:
        """Reads elements from behind the first one's marker to the closing tag of the element that they are in."""
        values: list[tuple[str, str]] = []
        is_list: bool | None = None
        while True:
            child = yield from self._read_tag(run)
            if not child:
                return None
            if is_list is None:
                is_list = self._is_list(child, known)
            of_child = known.item() if is_list else known.member(child)
            value = yield from self._read_value(run, mark, child, of_child, depth + 1)
            if value is None:
                return None
            values.append((child, value))
            yield from run.blank()
            if not (yield from run.literal(mark)):
                return None
            if (yield from run.literal(f"</{name}>")):
                break
        if is_list:
            return "[" + ", ".join(value for _, value in values) + "]"
        return "{" + ", ".join(f"{quoted(key)}: {value}" for key, value in dict(values).items()) + "}"

    def _is_list(self, child: str, known: _Known) -> bool:
        types = known.types
        if "array" in types and "object" not in types:
            return True
        return child == self.item and ("array" in types or not types)


def _scalar(text: str, known: _Known) -> str:
    """An element without elements: empty, it may be an empty list or object."""
    types = known.types
    if not text.strip() and types and "string" not in types:
        for name, empty in (("array", "[]"), ("object", "{}"), ("null", "null")):
            if name in types:
                return empty
    return as_json(text, known.schema, known.root)
