"""Answers that are content, with thoughts and calls between their markers in it."""

import re
from collections.abc import Callable, Sequence
from typing import Literal

from octavo.parsing.formats import ReasoningFormat, ToolFormat
from octavo.parsing.run import MAX_ENDLESS, Cut, Reading, Run, torn

TAIL = 64  # characters of content that are looked back at
_SPACES = " \t\r\n"
_REST = re.compile("[ \t\r\n\ud800-\udfff]*")
Found = Literal["call", "bare", "open", "close", "ignored", "wrap", "end"]


class Plain:
    """Reads one answer. calls, thoughts: its two tables, where it has them."""

    def __init__(self, run: Run, calls: ToolFormat | None, thoughts: ReasoningFormat | None, prompt_end: str) -> None:
        self._run = run
        self._calls = calls
        self._thoughts = thoughts
        self._before = "start"  # what the text at the place reached comes after: start, text, call, thought
        self._last = ""  # the end of the content so far
        self._is_thinking, self._is_stripping = _at_start(thoughts, prompt_end)
        mark = run.marker
        call_words = [mark(word) for word in calls.first_words] if calls else []
        opens = _counting([mark(word) for word in thoughts.opens], thoughts.opens) if thoughts else []
        self._opens = opens
        closes = _counting([mark(word) for word in thoughts.closes], thoughts.closes) if thoughts else []
        ignored = [mark(word) for word in thoughts.ignores] if thoughts else []
        marked = [mark(calls.open)] if calls and calls.open and not calls.is_open_needed else call_words
        in_thought = marked if calls and calls.ends_reasoning and not (thoughts and thoughts.hides_calls) else []
        bare = calls.bare if calls else ""
        wraps = [mark(word) for word in thoughts.wraps] if thoughts and thoughts.wraps else []
        self._wrap = wraps[0] if wraps else ""  # the one that may come next
        self._last_wrap = wraps[1] if wraps else ""
        self._in_content = _Seeker(
            {"open": opens, "close": closes, "call": call_words, "bare": [bare] if bare else [], "ignored": ignored, "wrap": wraps}
        )
        self._in_thought = _Seeker({"close": closes, "call": in_thought})

    def continue_after(self, earlier: "Plain") -> None:
        """Begins where another reading stands: in its thought or its content."""
        self._is_thinking, self._is_stripping = earlier._is_thinking, earlier._is_stripping
        self._before = "continued" if self._is_thinking else "text"

    def read(self) -> Reading[None]:
        """Reads to the end of the answer."""
        while True:
            if self._is_thinking:
                if not (yield from self._read_thought()):
                    return
            elif not (yield from self._read_content()):
                return

    # thoughts

    def _read_thought(self) -> Reading[bool]:
        """Reads a thought whose opening marker is passed. False at the end of the answer."""
        run, thoughts = self._run, self._thoughts
        assert thoughts is not None
        if self._before != "continued":
            yield from self._strip(thoughts.strips)
        if self._before == "start":
            yield from self._pass_opening()
            if thoughts.shows_all:
                run.say(thoughts.opens[0])
        self._before = "thought"
        while True:
            run.trim()
            found, blank, word = yield from self._in_thought.seek(run, self._think)
            if found == "close":
                self._think(_without(blank, thoughts.strips))
                run.at += len(word)
                if thoughts.shows_all:
                    run.say(word)
                self._is_thinking = False
                self._is_stripping = True
                return True
            if found == "end":
                self._think(blank)
                return False
            if (yield from self._try_call(blank, word, in_thought=True)):
                return True
            self._think(blank + word)
            run.at += len(word)

    def _pass_opening(self) -> Reading[None]:
        """Passes a marker that opens a thought which is open already."""
        assert self._thoughts is not None
        for word in self._opens:
            start = self._run.at
            yield from self._run.blank()
            if not (yield from self._run.is_at_end()) and (yield from self._literal(word)):
                yield from self._strip(self._thoughts.strips)
                return
            self._run.at = start

    def _literal(self, word: str) -> Reading[bool]:
        try:
            return (yield from self._run.literal(word))
        except Cut:
            return False

    def _think(self, text: str) -> None:
        assert self._thoughts is not None
        if self._thoughts.shows_all:
            self._run.say(text)
        else:
            self._run.think(text)

    # content

    def _read_content(self) -> Reading[bool]:
        """Reads content up to a thought. False at the end of the answer."""
        run = self._run
        if self._is_stripping and self._thoughts is not None:
            self._is_stripping = False
            self._before = "thought"
            yield from self._strip(self._thoughts.strips)
        while True:
            run.trim()
            found, blank, word = yield from self._in_content.seek(run, self._say)
            if found == "end":
                if self._before in ("start", "text"):
                    run.say(blank)
                return False
            if found == "open":
                if self._before == "text":
                    self._say(blank)
                run.at += len(word)
                assert self._thoughts is not None
                if self._thoughts.shows_all:
                    run.say(word)
                self._is_thinking, self._before = True, "inside"
                return True
            if found == "close" and self._before == "start":  # a thought that was never opened: an empty one
                run.at += len(word)
                self._is_stripping = True
                return True
            if found == "ignored":
                if self._before == "text":
                    self._say(blank)
                run.at += len(word)
            elif found == "wrap":
                yield from self._pass_wrap(blank, word)
            elif not self._may_be_call(found, blank, word) or not (yield from self._try_call(blank, word, is_bare=found == "bare")):
                self._say(blank + word)
                run.at += len(word)

    def _pass_wrap(self, blank: str, word: str) -> Reading[None]:
        """Passes a marker around the content with the white space beside it, where it stands at the content's beginning or end."""
        run, thoughts = self._run, self._thoughts
        assert thoughts is not None
        start, run.at = run.at, run.at + len(word)
        fits = word == self._wrap and (word == self._last_wrap or self._before in ("start", "thought"))
        if fits and word == self._last_wrap:
            yield from run.blank()
            fits = (yield from run.is_at_end()) or (yield from self._is_call_next())
            run.at = start + len(word)
        if not fits:
            self._say(blank + word)
            return
        if self._before == "text":
            self._say(_without(blank, thoughts.strips))
        self._wrap = "" if word == self._last_wrap else self._last_wrap
        yield from self._strip(thoughts.strips)

    def _is_call_next(self) -> Reading[bool]:
        run, calls = self._run, self._calls
        ways = [[run.marker(word)] for word in calls.first_words] if calls else []
        while (answer := run.follows(run.at, ways)) is None:
            yield from run.more()
        return answer

    def _say(self, text: str) -> None:
        if text:
            self._run.say(text)
            self._before, self._last = "text", (self._last + text)[-TAIL:]

    def _may_be_call(self, found: Found, blank: str, word: str) -> bool:
        if found == "bare":
            return self._before != "text" or "\n" in blank
        return found == "call" and not self._is_spelled_out(word)

    def _is_spelled_out(self, word: str) -> bool:
        """Whether the marker that calls begin with stands before this one in letters, though it is a token: the call is quoted."""
        calls = self._calls
        assert calls is not None
        is_first = word == self._run.marker(calls.open)
        return bool(calls.open) and not is_first and self._run.marker(calls.open) != calls.open and self._last.endswith(calls.open)

    def _strip(self, characters: str) -> Reading[None]:
        """Passes these white-space characters."""
        run = self._run
        while not (yield from run.is_at_end()) and run.text[run.at] in characters:
            run.at += 1

    # calls

    def _try_call(self, blank: str, word: str, in_thought: bool = False, is_bare: bool = False) -> Reading[bool]:
        """Reads calls at a marker of theirs, the white space before it passed already. False: it is text, and nothing was read.

        A call that the length limit cut off is dropped with all that follows: then the answer is at its end.
        """
        run, calls = self._run, self._calls
        assert calls is not None
        if run.num_endless > MAX_ENDLESS:
            return False
        mark = run.mark()
        self._end_text(blank, in_thought)
        run.is_doubtful = in_thought or is_bare
        try:
            is_call = yield from calls.read(run)
            if is_call and run.is_doubtful:
                yield from run.take(_REST)
                is_call = yield from run.is_at_end()
        except Cut:
            is_call = False
            if run.was_cut_off:
                if run.back(mark):
                    self._end_text(blank, in_thought)
                run.at = len(run.text)
                self._before = "call"
                return True
            run.num_endless += 1
        finally:
            run.is_doubtful = False
        if is_call:
            run.release(mark)
        elif run.back(mark):
            return False
        self._is_thinking = False
        self._before = "call"
        return True

    def _end_text(self, blank: str, in_thought: bool) -> None:
        """Says what of the white space before a call belongs to the text before it."""
        if in_thought:
            assert self._thoughts is not None
            self._think(_without(blank, self._thoughts.strips))
        elif self._before == "text":
            assert self._calls is not None
            self._run.say(self._calls.before(self._last, blank))


class _Seeker:
    """Looks for markers, and gives away the text before them as soon as it is certain. words: by what they are."""

    def __init__(self, words: dict[Found, list[str]]) -> None:
        self._kinds: dict[str, Found] = {word: kind for kind, group in words.items() for word in group}
        self._words = sorted(self._kinds, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._words))) if self._words else None

    def seek(self, run: Run, say: Callable[[str], None]) -> Reading[tuple[Found, str, str]]:
        """Passes text up to a marker: what it is, the white space before it (not said), and the marker (not passed)."""
        while True:
            found = self._pattern.search(run.text, run.at) if self._pattern else None
            if found and not run.has_ended and self._may_grow(run.text[found.start() :]):
                found = None
            end = found.start() if found else self._end_of_text(run)
            solid = run.text[run.at : end].rstrip(_SPACES)
            say(solid)
            run.at += len(solid)
            if found or run.has_ended:
                blank = run.text[run.at : end]
                run.at = end if found else len(run.text)
                return (self._kinds[found[0]], blank, found[0]) if found else ("end", blank, "")
            run.trim()
            yield

    def _end_of_text(self, run: Run) -> int:
        """How far the text is none of a marker's. At the end of the answer all is, but for a marker's first tokens, cut off."""
        end = len(run.text) - torn(run.text[run.at :], self._words)
        is_token = run.was_cut_off and "\ud800" <= run.text[end : end + 1] <= "\udfff"
        return end if is_token or not run.has_ended else len(run.text)

    def _may_grow(self, text: str) -> bool:
        """Whether this may yet become a longer marker than the one that it is."""
        return any(len(word) > len(text) and word.startswith(text) for word in self._words)


def _counting(marked: list[str], words: Sequence[str]) -> list[str]:
    """The markers that count: where one of them has tokens, one without any is text."""
    with_tokens = [word for word, spelling in zip(marked, words) if word != spelling]
    return with_tokens or marked


def _without(blank: str, strips: str) -> str:
    return blank.rstrip(strips) if strips else blank


def _at_start(thoughts: ReasoningFormat | None, prompt_end: str) -> tuple[bool, bool]:
    """Whether the answer begins inside a thought, and whether right after one."""
    if thoughts is None:
        return False, False
    prompt = prompt_end.rstrip()
    if any(prompt.endswith(word.rstrip()) for word in thoughts.opens):
        return True, False
    if any(prompt.endswith(word.rstrip()) for word in thoughts.closes):
        return False, True
    return thoughts.starts_open, False
