"""One answer being read: its text so far, the place reached, the events made, and the way back to an earlier place.

Whoever reads asks here, and waits (`yield`) where the answer depends on text that has not come. So no outcome depends on the cuts.
"""

import re
from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeVar

from octavo.parsing.alphabet import Alphabet
from octavo.parsing.events import Arguments, Content, Event, Reasoning, Tool, ToolCall, ToolEnd, join

T = TypeVar("T")
Reading = Generator[None, None, T]
END = ""  # among the words that may follow: the end of the text
# How a call that seems to have no end may be read: a whole call inside a value is quoted there; no, nothing is quoted; and its closing
# markers may be missing.
DOUBTS = QUOTES, NO_QUOTES, FORGOTTEN = range(3)
MAX_ENDLESS = 32  # readings without an end are tried again at the next marker; after so many the rest is text
_BLANK = re.compile(r"[ \t\r\n]*")


class Cut(Exception):
    """The text ended where more had to come."""


class Mark(NamedTuple):
    """A place to go back to."""

    at: int
    num_events: int
    num_calls: int
    limit: int | None


class Run:
    """The state of one answer."""

    def __init__(self, alphabet: Alphabet, tools: Sequence[Tool], whole_calls: bool) -> None:
        self.alphabet = alphabet
        self.tools = {tool.name: tool for tool in tools}
        self.whole_calls = whole_calls
        self.text = ""
        self.at = 0
        self.has_ended = False
        self.was_cut_off = False
        self.doubts = QUOTES
        self.num_endless = 0  # readings that found no end
        self.is_quoting = False  # inside an argument: calls found there are text
        self.is_spelling = False  # in a quoted call whose markers are ordinary text
        self.is_unsure = False  # in calls whose first marker is missing: they count once the last one has come
        self.is_doubtful = False  # inside a thought: calls found there count only if the answer ends with them
        self.num_calls = 0
        self._events: list[Event] = []
        self._num_given = 0
        self._num_sure = 0  # no way leads back before this event
        self._limit: int | None = None  # events from here on may yet be taken back

    def marker(self, spelling: str) -> str:
        """A format's own text as it stands in this answer."""
        return spelling if self.is_spelling else self.alphabet.marker(spelling)

    # events

    def deliver(self) -> list[Event]:
        """The events that are certain; they are forgotten here."""
        limit = len(self._events) if self._limit is None else self._limit - self._num_given
        if limit <= 0:
            return []
        given, self._events = self._events[:limit], self._events[limit:]
        self._num_given += len(given)
        return join(given)

    def say(self, text: str) -> None:
        shown = self.alphabet.shown(text)
        if shown:
            self._events.append(Content(shown))

    def think(self, text: str) -> None:
        shown = self.alphabet.shown(text)
        if shown:
            self._events.append(Reasoning(shown))

    def start_call(self, name: str, call_id: str | None = None) -> None:
        self._events.append(ToolCall(self.num_calls, name, call_id))
        self.num_calls += 1
        if not (self.whole_calls or self.doubts != QUOTES):
            self.commit()

    def argue(self, text: str) -> None:
        """More of the arguments of the call that was started last: JSON text, tokens already spelled."""
        if text:
            self._events.append(Arguments(self.num_calls - 1, text))

    def end_call(self) -> None:
        self._events.append(ToolEnd(self.num_calls - 1))

    def offers(self, name: str) -> bool:
        return bool(name) and (not self.tools or name in self.tools or self.is_quoting)

    # the way back

    @property
    def _num_events(self) -> int:
        return self._num_given + len(self._events)

    def mark(self) -> Mark:
        """From here on nothing is certain until `release`, `back` or `commit`."""
        mark = Mark(self.at, self._num_events, self.num_calls, self._limit)
        if self._limit is None:
            self._limit = self._num_events
        return mark

    def release(self, mark: Mark) -> None:
        """What was read since the mark stands, as far as the marks before it do."""
        self._limit = None if mark.limit is None or mark.limit < self._num_sure else mark.limit

    def back(self, mark: Mark) -> bool:
        """Nothing was read since the mark. False if something has been made certain since: then only the mark is gone."""
        self.release(mark)
        if mark.num_events < self._num_sure:
            return False
        self.at, self.num_calls = mark.at, mark.num_calls
        del self._events[mark.num_events - self._num_given :]
        return True

    def commit(self) -> None:
        """All that was read is certain, whatever comes next."""
        if not (self.is_quoting or self.is_doubtful or self.is_unsure):
            self._num_sure = self._num_events
            self._limit = None

    # reading

    def trim(self) -> None:
        """Forgets the text before the place reached: no way leads back there. Places that a caller remembers are void."""
        if self._limit is None:
            self.text, self.at = self.text[self.at :], 0

    def more(self) -> Reading[None]:
        """Waits for more text. Raises Cut at its end."""
        if self.has_ended:
            raise Cut
        yield

    def is_at_end(self) -> Reading[bool]:
        while self.at == len(self.text):
            if self.has_ended:
                return True
            yield
        return False

    def peek(self) -> Reading[str]:
        """The next character. Raises Cut at the end."""
        while self.at == len(self.text):
            yield from self.more()
        return self.text[self.at]

    def blank(self) -> Reading[str]:
        """Passes white space."""
        start = self.at
        while True:
            found = _BLANK.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
            if self.at < len(self.text) or self.has_ended:
                return self.text[start : self.at]
            yield

    def take(self, pattern: re.Pattern[str]) -> Reading[str]:
        """Passes what the pattern, a run of characters of one class, matches; that may be nothing."""
        start = self.at
        while True:
            found = pattern.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text) or self.has_ended:
                return self.text[start : self.at]
            yield

    def literal(self, word: str) -> Reading[bool]:
        """Passes this word if it stands here. Raises Cut if the text ends within it."""
        while True:
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return True
            if not self._may_become(word, self.at):
                return False
            yield from self.more()

    def until(self, word: str) -> Reading[str]:
        """Passes everything up to this word, and the word."""
        start = scan = self.at
        while True:
            found = self.text.find(word, scan)
            if found >= 0:
                self.at = found + len(word)
                return self.text[start:found]
            scan = max(start, len(self.text) - len(word) + 1)
            yield from self.more()

    def follows(self, at: int, ways: Sequence[Sequence[str]]) -> bool | None:
        """Whether one of these ways, words with white space before each, goes on at this place. None: it depends on more text."""
        answers = [self._goes(at, way) for way in ways]
        return True if True in answers else None if None in answers else False

    def _goes(self, at: int, way: Sequence[str]) -> bool | None:
        for word in way:
            found = _BLANK.match(self.text, at)
            assert found is not None
            at = found.end()
            if word == END:
                return False if at < len(self.text) else True if self.has_ended else None
            if not self.text.startswith(word, at):
                return None if self._may_become(word, at) and not self.has_ended else False
            at += len(word)
        return True

    def _may_become(self, word: str, at: int) -> bool:
        return len(self.text) - at < len(word) and word.startswith(self.text[at:])


def torn(text: str, words: Sequence[str]) -> int:
    """How many characters at the end may be the beginning of one of the words."""
    longest = 0
    for word in words:
        for length in range(min(len(word) - 1, len(text)), longest, -1):
            if text.endswith(word[:length]):
                longest = length
                break
    return longest
