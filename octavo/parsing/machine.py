"""The machine: pieces of a model's text in, events out, the same events however the text was cut."""

from collections.abc import Callable, Sequence

from octavo.parsing.events import Content, Event, Parser, Piece, Tool


def open_parser(
    *,
    tool_format: str | None = None,
    reasoning_format: str | None = None,
    tools: Sequence[Tool] = (),
    markers: Callable[[str], int | None] = lambda spelling: None,
    prompt_end: str = "",
    whole_calls: bool = True,
    keep_special_tokens: bool = False,
) -> Parser:
    """A parser for one answer.

    tool_format, reasoning_format: names of files in octavo/parsing/tools and octavo/parsing/reasoning; None: such text is content.
    tools: what the request offers; a call of another name is no call but content (with no tools given, every name is one).
    markers: the id of the one token of the vocabulary (special or merely added) that a spelling is, or None where there is none. A marker
    that has a token counts only as that token: the same characters in ordinary tokens are text.
    prompt_end: how the prompt ends: has the template opened or closed the reasoning?
    whole_calls: a call's events come when it is whole, so that nothing has to be taken back when it is cut off or turns out to be none;
    False: they come as they are written (a cut call then has a ToolCall and no ToolEnd).
    keep_special_tokens: special tokens that are no markers show in content and reasoning (skip_special_tokens=false).
    """
    return _Plain()


class _Plain:
    def feed(self, pieces: Sequence[Piece]) -> list[Event]:
        text = "".join(piece.text for piece in pieces if not piece.is_special)
        return [Content(text)] if text else []

    def finish(self, cut_off: bool = False) -> list[Event]:
        return []
