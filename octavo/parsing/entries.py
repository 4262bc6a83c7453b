"""Arguments as marked keys and values (XML-like formats). A value is raw text, so its end is where the markup makes sense again.

A closing marker ends a value only if what may follow it follows; a whole call quoted inside a value is text. Where no such reading
exists at the end of the answer, a second reading forgives forgotten markers.
"""

import html
from dataclasses import dataclass

from octavo.parsing.json_text import quoted
from octavo.parsing.parts import PLAIN, Call, Outer
from octavo.parsing.run import END, FORGOTTEN, MAX_ENDLESS, QUOTES, Cut, Reading, Run
from octavo.parsing.values import as_json, property_schema


@dataclass(frozen=True)
class Entries:
    """Entries up to `end`, each: open KEY key_end [value_open | type_open TYPE type_end] VALUE close.

    text_types: types that make a value a string whatever the schema says (others make it JSON). wrap: what stands once on each side of
    a value and is not part of it. forgets_close: models are known to begin the next entry without closing one. is_escaped: keys are
    written with HTML's entities. then: what the row goes on with after `end`.
    """

    open: str
    key_end: str
    close: str
    end: str
    value_open: str = ""
    type_open: str = ""
    type_end: str = ""
    text_types: tuple[str, ...] = ("true", "string")
    wrap: str = ""
    forgets_close: bool = False
    is_escaped: bool = False
    then: str = ""

    def read(self, run: Run, call: Call) -> Reading[bool]:
        mark = run.marker
        seen: set[str] = set()
        call.put("{")
        while True:
            yield from run.blank()
            if (yield from run.literal(mark(self.end))):
                call.put("}")
                return True
            head = yield from self._read_head(run)
            if head is None:
                return False
            key, kind = head
            text = yield from self._read_value(run, call, seen | {key})
            if text is None:
                return False
            if key in seen:
                continue  # the first one counts
            call.put((", " if seen else "") + f"{quoted(key)}: {self._converted(call, key, kind, text)}")
            seen.add(key)

    def _converted(self, call: Call, key: str, kind: str, text: str) -> str:
        if kind:
            return quoted(text) if kind in self.text_types else as_json(text, None)
        return as_json(text, property_schema(call.parameters, key), call.parameters)

    def _read_head(self, run: Run) -> Reading[tuple[str, str] | None]:
        """Reads an entry up to its value: its key and type. None: no entry stands here."""
        mark = run.marker
        if not (yield from run.literal(mark(self.open))):
            return None
        key = (yield from run.until(mark(self.key_end))).strip()
        if run.is_quoting and not PLAIN.fullmatch(key):
            return None
        kind = ""
        if self.value_open:
            yield from run.blank()
            if not (yield from run.literal(mark(self.value_open))):
                return None
        if self.type_open:
            if not (yield from run.literal(mark(self.type_open))):
                return None
            kind = yield from run.until(mark(self.type_end))
            if run.is_quoting and not PLAIN.fullmatch(kind):
                return None
        key = run.alphabet.argument(key)
        return html.unescape(key) if self.is_escaped else key, kind

    def _read_value(self, run: Run, call: Call, seen: set[str]) -> Reading[str | None]:
        """Reads a value and its closing marker. None: calls begin within calls whose first marker is missing, so these are none."""
        start = scan = run.at
        close, end = run.marker(self.close), run.marker(self.end)
        while True:
            found = self._next_marker(run, scan, call)
            if found is None:
                scan = max(scan, len(run.text) - self._longest(run, call))
                yield from run.more()
                continue
            at, word = found
            if run.is_unsure and word == run.marker(_outer(call).open) and not run.is_quoting:
                return None
            after = at + len(close) if word == close else at
            ways = self._ways_on(run, call)
            if word in (close, end) and (yield from self._follows(run, after, [(self.open,), *ways] if after > at else ways)):
                forgotten = yield from self._next_entry(run, call, start, at, seen)
                run.at = after if forgotten is None else forgotten
                return self._unwrapped(run, run.text[start : at if forgotten is None else forgotten])
            scan = (yield from self._quoted_until(run, call, at, word)) or at + 1

    def _unwrapped(self, run: Run, text: str) -> str:
        if self.wrap:
            text = text.removeprefix(self.wrap).removesuffix(self.wrap)
        return run.alphabet.argument(text)

    def _next_marker(self, run: Run, scan: int, call: Call) -> tuple[int, str] | None:
        """The next place where the value may end, or where a call may be quoted, and what stands there."""
        words = [run.marker(self.close), *([run.marker(self.end)] if run.doubts == FORGOTTEN else []), *self._starts(run, call)]
        places = [(at, -len(word), word) for word in words if (at := run.text.find(word, scan)) >= 0]
        if not places:
            return None
        at, _, word = min(places)
        return at, word

    def _starts(self, run: Run, call: Call) -> list[str]:
        """What a quoted call may begin with: a model that quotes one writes its markers as such, or as ordinary text."""
        if run.is_quoting:
            return []
        words = _outer(call).first_words
        return list(dict.fromkeys((*map(run.marker, words), *words)))

    def _longest(self, run: Run, call: Call) -> int:
        return max(map(len, (run.marker(self.close), run.marker(self.end), *self._starts(run, call)))) - 1

    def _ways_on(self, run: Run, call: Call) -> list[tuple[str, ...]]:
        """How a call may go on at its end marker."""
        outer = _outer(call)
        if self.then and not run.is_quoting and run.doubts != FORGOTTEN:
            return [(self.end, self.then)]
        if not outer.close or run.is_quoting or run.doubts == FORGOTTEN:
            return [(self.end,)]
        return [(self.end, word) for word in (outer.close, outer.call_word, END) if word != END or not run.was_cut_off]

    def _follows(self, run: Run, at: int, ways: list[tuple[str, ...]]) -> Reading[bool]:
        marked = [tuple(run.marker(word) for word in way) for way in ways]
        while (answer := run.follows(at, marked)) is None:
            yield from run.more()
        return answer

    def _next_entry(self, run: Run, call: Call, start: int, end: int, seen: set[str]) -> Reading[int | None]:
        """Where, in a value, the next argument of the tool begins, the marker that closes this one forgotten. None: nowhere.

        What opens and closes again inside the value is quoted.
        """
        properties = call.parameters.get("properties")
        if not self.forgets_close or run.is_quoting or not isinstance(properties, dict):
            return None
        opening = self.wrap + run.marker(self.open)
        here, at = run.at, max(start + len(self.wrap), run.text.rfind(run.marker(self.close), start, end))
        while (at := run.text.find(opening, at, end)) >= 0:
            run.at = at + len(self.wrap)
            head = yield from self._read_head(run)
            stands, run.at = run.at, here
            is_wrapped = run.text.startswith(self.wrap, stands) and stands < end and stands + 2 * len(self.wrap) <= end
            if head and head[0] in properties and head[0] not in seen and is_wrapped:
                return at + len(self.wrap)
            at += 1
        return None

    def _quoted_until(self, run: Run, call: Call, at: int, word: str) -> Reading[int | None]:
        """The end of a whole call that begins here, inside a value: it is text."""
        if run.doubts != QUOTES or word not in self._starts(run, call) or run.num_endless > MAX_ENDLESS:
            return None
        is_spelling = word not in map(run.marker, _outer(call).first_words)
        mark = run.mark()
        run.at = at
        run.is_quoting, run.is_spelling = True, is_spelling
        try:
            is_call = yield from _outer(call).read(run)
            return run.at if is_call else None
        except Cut:
            run.num_endless += 1
            return None
        finally:
            run.is_quoting = run.is_spelling = False
            run.back(mark)


def _outer(call: Call) -> Outer:
    assert call.outer is not None
    return call.outer
