"""Answers that are messages with a header each, as gpt-oss writes them (harmony): a channel, perhaps a recipient, then the text.

<|start|>assistant to=NAME<|channel|>CHANNEL to=NAME <|constrain|>TYPE<|message|>TEXT<|end|>; a recipient `functions.NAME` makes it a call.
A header that never reaches its text is passed over, and a last message that the model left without one is content.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from octavo.parsing.json_text import read_value
from octavo.parsing.parts import Call
from octavo.parsing.run import Cut, Reading, Run, torn

_RECIPIENT = re.compile(r"to=([^\s<\ud800-\udfff]+)")


@dataclass(frozen=True)
class Channels:
    """The markers of such a language, and which channels are what."""

    start: str
    channel: str
    message: str
    ends: tuple[str, ...]
    tokens: tuple[str, ...]
    closes: tuple[str, ...]
    shown: tuple[str, ...] = ("final", "commentary")
    functions: str = "functions."

    def read(self, run: Run, has_tools: bool, prompt_end: str) -> Reading[None]:
        """Reads one answer."""
        mark = run.marker
        ends = [mark(word) for word in (*self.ends, self.start)]
        header_ends = [mark(self.message), *ends]
        _, _, opened = prompt_end.rpartition(self.start)
        if self.message in opened:
            run.text = mark(opened.partition(self.message)[0] + self.message) + run.text  # the prompt has begun a message
        while not (yield from run.is_at_end()):
            run.trim()
            header, end = yield from _upto(run, header_ends)
            if end != mark(self.message):
                self._pass_header(run, header, is_last=not end)
                continue
            channel, recipient = self._facts(run, header)
            if recipient and has_tools and recipient.startswith(self.functions):
                yield from self._read_call(run, recipient.removeprefix(self.functions), ends)
            elif recipient and not recipient.startswith(self.functions) and recipient != "assistant":
                yield from _read_text(run, ends, lambda text: None)  # a word to a tool that is built in elsewhere
            else:
                yield from _read_text(run, ends, run.say if channel in self.shown else run.think)

    def _facts(self, run: Run, header: str) -> tuple[str, str]:
        """A header's channel (the last one named) and recipient."""
        _, _, last = header.rpartition(run.marker(self.channel))
        channel = re.match(r"\s*([^\s<\ud800-\udfff]*)", last)
        assert channel is not None
        recipients = _RECIPIENT.findall(header)
        return channel[1], recipients[-1] if recipients else ""

    def _pass_header(self, run: Run, header: str, is_last: bool) -> None:
        """A header without a text: where the model stopped in it by itself, what it wrote is content."""
        if is_last and not run.was_cut_off:
            _, found, said = header.rpartition(run.marker(self.channel))
            name = next((name for name in self.shown if said.startswith(name)), "")
            run.say(said.removeprefix(name).lstrip() if found else header)

    def _read_call(self, run: Run, name: str, ends: list[str]) -> Reading[None]:
        """Reads a call's text: a JSON object. What is none, or names no tool, is content."""
        mark = run.mark()
        call = Call(run)
        try:
            yield from run.blank()
            if call.named(name) and (yield from run.peek()) == "{" and (yield from read_value(run, call.put)):
                call.finish()
                run.release(mark)
                run.commit()
                yield from _read_text(run, ends, lambda text: None)
                return
        except Cut:
            if run.was_cut_off:
                run.back(mark)
                run.at = len(run.text)
                return
        if run.back(mark):
            yield from _read_text(run, ends, run.say)


def _upto(run: Run, words: list[str]) -> Reading[tuple[str, str]]:
    """Passes everything up to the first of these words, and the word; "" at the end of the text."""
    start = run.at
    pattern = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))
    while True:
        found = pattern.search(run.text, start)
        if found or run.has_ended:
            run.at = found.end() if found else len(run.text)
            return run.text[start : found.start() if found else None], found[0] if found else ""
        yield


def _read_text(run: Run, ends: list[str], say: Callable[[str], None]) -> Reading[None]:
    """Passes a message's text, and what ends it."""
    pattern = re.compile("|".join(map(re.escape, sorted(ends, key=len, reverse=True))))
    while True:
        found = pattern.search(run.text, run.at)
        end = found.start() if found else len(run.text) if run.has_ended else len(run.text) - torn(run.text[run.at :], ends)
        say(run.text[run.at : end])
        run.at = found.end() if found else end
        if found or run.has_ended:
            return
        run.trim()
        yield
