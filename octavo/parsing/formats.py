"""The two kinds of table: how a model writes its calls, and how it writes its reasoning.

A table of calls is a row of parts (octavo.parsing.parts, entries) with what stands around it; a table of reasoning is a pair of markers
with the white space that belongs to them. What fits neither (channels) is a language of its own: octavo.parsing.channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from octavo.parsing.parts import Call, Row, read_row
from octavo.parsing.run import DOUBTS, Cut, Reading, Run


@dataclass(frozen=True)
class ToolFormat:
    """How calls are written.

    call: the row of one call. open, close: what stands around all calls of an answer; "" if nothing does. is_open_needed: False if models
    are known to forget `open`. close may always be missing at the end of the answer.
    tokens: the spellings in all of these rows that may be single tokens of a vocabulary.
    strips_before: white space between text and a call that belongs to the markup. strips_sentence: one more blank, after a sentence.
    skips_noise: text between the calls of one section is no content.
    bare: where calls have no marker before them: the character that they begin with. Such a call counts only at the beginning of a line,
    and if the answer ends with it. A row of which the first string is a Maybe may be bare.
    ends_reasoning: calls inside an unclosed thought count, if the answer ends with them.
    """

    call: Row
    open: str = ""
    close: str = ""
    is_open_needed: bool = True
    tokens: tuple[str, ...] = ()
    strips_before: str = ""
    strips_sentence: bool = False
    skips_noise: bool = False
    bare: str = ""
    markers: tuple[str, ...] = ()
    ends_reasoning: bool = True

    @property
    def call_word(self) -> str:
        """The string that a call begins with; "" where it begins with none."""
        return self.call[0] if isinstance(self.call[0], str) else ""

    @cached_property
    def first_words(self) -> Sequence[str]:
        """The markers that calls are found by."""
        if self.markers:
            return self.markers
        words = (self.open, "" if self.open and self.is_open_needed else self.call_word)
        return tuple(word for word in words if word)

    def before(self, text: str, blank: str) -> str:
        """The white space before a call, after this text, as far as it is content."""
        if self.strips_sentence and text[-1:] in (".", "!", "?", ":", "…"):
            return blank.rstrip(" ")
        return blank.rstrip(self.strips_before) if self.strips_before else blank

    def read(self, run: Run) -> Reading[bool]:
        """Reads calls at the place reached. False if none are written there; Cut if the text ends before the first one does."""
        if not self.open:
            return (yield from self._read_call(run))
        has_open = yield from run.literal(run.marker(self.open))
        if has_open or run.is_quoting:
            return (has_open or not self.is_open_needed) and (yield from self._read_section(run))
        if self.is_open_needed:
            return False
        run.is_unsure = True
        try:
            is_section = yield from self._read_section(run, needs_close=True)
        finally:
            run.is_unsure = False
        if is_section:
            run.commit()
        return is_section

    def _read_section(self, run: Run, needs_close: bool = False) -> Reading[bool]:
        """Reads calls up to the closing marker. needs_close: without it, or the end of the answer, these are none."""
        num_calls = 0
        has_noise = False
        while True:
            start = run.at
            yield from run.blank()
            if num_calls and (yield from run.is_at_end()):
                return True
            if (yield from run.literal(run.marker(self.close))):
                return num_calls > 0 or not has_noise
            mark = run.mark()
            try:
                is_call = yield from self._read_call(run)
            except Cut:
                if not num_calls or needs_close or not run.back(mark):
                    raise
                self._give_up(run, start)
                return True
            if is_call:
                run.release(mark)
                num_calls += 1
            elif not run.back(mark):
                return True  # its beginning is given away
            elif (yield from self._pass_noise(run)):
                has_noise = True
            else:
                run.at = start
                return num_calls > 0 and not needs_close

    def _read_call(self, run: Run) -> Reading[bool]:
        """Reads one call. If the model stopped and it has no end, it is read again, with the next of DOUBTS."""
        mark = run.mark()
        for doubts in DOUBTS:
            run.doubts = doubts
            try:
                is_call = yield from self._read_row(run)
            except Cut:
                if doubts == DOUBTS[-1] or run.was_cut_off or run.is_quoting or not run.back(mark):
                    raise
                run.mark()
            else:
                break
            finally:
                run.doubts = DOUBTS[0]
        if is_call:
            run.release(mark)
            run.commit()
        return is_call

    def _read_row(self, run: Run) -> Reading[bool]:
        call = Call(run, self)
        if not (yield from read_row(run, call, self.call)):
            return False
        return call.is_many or call.finish()

    def _give_up(self, run: Run, start: int) -> None:
        """After whole calls the text ends within one: cut off, it is dropped; else it is content."""
        run.at = len(run.text) if run.was_cut_off else start

    def _pass_noise(self, run: Run) -> Reading[bool]:
        """Passes text up to the next call or the end of the section."""
        if not self.skips_noise or run.is_quoting:
            return False
        words = [run.marker(word) for word in (self.call_word, self.close)]
        scan = run.at + 1
        while True:
            places = [at for word in words if (at := run.text.find(word, scan)) >= 0]
            if places:
                run.at = min(places)
                return True
            scan = max(scan, len(run.text) - max(map(len, words)) + 1)
            yield from run.more()


@dataclass(frozen=True)
class ReasoningFormat:
    """How reasoning is written: between `opens` and `closes` (each several spellings; the first is the usual one).

    tokens: spellings that may be single tokens. strips: white space that belongs to the markers, on the inner side of both and after the
    closing one. starts_open: the answer begins inside a thought, unless the prompt closed it, whether or not a marker says so.
    ignores: markers in content that mean nothing. shows_all: thoughts are content, markers included.
    wraps: markers at the beginning and at the end of the content, which may be missing.
    """

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    strips: str = "\n"
    starts_open: bool = False
    ignores: tuple[str, ...] = ()
    wraps: tuple[str, str] | None = None
    shows_all: bool = False
    hides_calls: bool = False
