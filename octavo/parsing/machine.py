"""The machine: pieces of a model's text in, events out, the same events however the text was cut."""

from collections.abc import Callable, Sequence

from octavo import plugins
from octavo.parsing.alphabet import Alphabet
from octavo.parsing.channels import Channels
from octavo.parsing.events import Event, Parser, Piece, Tool
from octavo.parsing.formats import ReasoningFormat, ToolFormat
from octavo.parsing.plain import Plain
from octavo.parsing.run import Reading, Run


def open_parser(
    *,
    tool_format: str | None = None,
    reasoning_format: str | None = None,
    tools: Sequence[Tool] = (),
    markers: Callable[[str], int | None] = lambda spelling: None,
    prompt_end: str = "",
    prefix: str = "",
    whole_calls: bool = True,
    keep_special_tokens: bool = False,
) -> Parser:
    """A parser for one answer.

    tool_format, reasoning_format: names of files in octavo/parsing/tools and octavo/parsing/reasoning; None: such text is content.
    tools: what the request offers; a call of another name is no call but content (with no tools given, every name is one).
    markers: the id of the one token of the vocabulary (special or merely added) that a spelling is, or None where there is none. A marker
    that has a token counts only as that token: the same characters in ordinary tokens are text.
    prompt_end: how the prompt ends: has the template opened or closed the reasoning?
    prefix: the part of the answer that the prompt holds already (a continued message), after prompt_end: is it a thought or content?
    whole_calls: a call's events come when it is whole, so that nothing has to be taken back when it is cut off or turns out to be none;
    False: they come as they are written (a cut call then has a ToolCall and no ToolEnd).
    keep_special_tokens: special tokens that are no markers show in content and reasoning (skip_special_tokens=false).

    Raises plugins.UnknownNameError.
    """
    calls = plugins.load("parsing.tools", tool_format).FORMAT if tool_format else None
    thoughts = plugins.load("parsing.reasoning", reasoning_format).FORMAT if reasoning_format else None
    return build(calls, thoughts, tools, markers, prompt_end, prefix, whole_calls, keep_special_tokens)


def build(
    calls: ToolFormat | Channels | None,
    thoughts: ReasoningFormat | Channels | None,
    tools: Sequence[Tool] = (),
    markers: Callable[[str], int | None] = lambda spelling: None,
    prompt_end: str = "",
    prefix: str = "",
    whole_calls: bool = True,
    keep_special_tokens: bool = False,
) -> Parser:
    """The parser for two tables; see open_parser."""
    tokens = (*(calls.tokens if calls else ()), *(thoughts.tokens if thoughts else ()))
    run = Run(Alphabet(tokens, markers, keep_special_tokens), tools, whole_calls)
    channels = calls if isinstance(calls, Channels) else thoughts if isinstance(thoughts, Channels) else None
    if channels is not None:
        return _Machine(run, channels.read(run, has_tools=calls is not None, prompt_end=prompt_end + prefix))
    assert not isinstance(calls, Channels)
    assert not isinstance(thoughts, Channels)
    plain = Plain(run, calls, thoughts, prompt_end)
    if prefix:
        earlier_run = Run(run.alphabet, tools, whole_calls)
        earlier = Plain(earlier_run, calls, thoughts, prompt_end)
        earlier_run.text = run.alphabet.marker(prefix)
        next(earlier.read(), None)
        plain.continue_after(earlier)
    return _Machine(run, plain.read())


def reasoning_end(name: str) -> tuple[str, ...]:
    """The markers that end the reasoning in this format, the usual one first."""
    thoughts: ReasoningFormat | Channels = plugins.load("parsing.reasoning", name).FORMAT
    return thoughts.closes


class _Machine:
    """Drives one reading: it runs as far as the text allows, and waits."""

    def __init__(self, run: Run, reading: Reading[None]) -> None:
        self._run = run
        self._reading = reading
        self._is_done = False
        self._step()

    def feed(self, pieces: Sequence[Piece]) -> list[Event]:
        letters = "".join(map(self._run.alphabet.letters, pieces))
        if not letters:
            return []
        self._run.text += letters
        self._step()
        return self._run.deliver()

    def finish(self, cut_off: bool = False) -> list[Event]:
        if not self._is_done:
            self._run.has_ended = True
            self._run.was_cut_off = cut_off
            self._step()
        return self._run.deliver()

    def _step(self) -> None:
        if not self._is_done and next(self._reading, self) is self:
            self._is_done = True
