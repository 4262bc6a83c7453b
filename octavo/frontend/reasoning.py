"""Reasoning: how far a prompt has brought it, so that a grammar and a budget know where the output begins."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo import plugins
from octavo.parsing.formats import ReasoningFormat
from octavo.protocol.messages import Marker, Reasoning, ReasoningState
from octavo.text.tokenizer import Tokenizer

TAIL = 64  # tokens of the prompt's end that are read as text


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The texts that begin and end a model's reasoning; the first of `ends` is written when it must end.

    is_optional: an answer may also begin without any of them. starts_open: it begins inside reasoning, unless the prompt closed it.
    """

    starts: tuple[str, ...]
    ends: tuple[str, ...]
    is_optional: bool = True
    starts_open: bool = False
    ends_before_calls: tuple[str, ...] = ()  # instead of `ends` where the grammar is of calls, which have markers of their own


def markers_of(format_name: str | None) -> ReasoningMarkers | None:
    """Those of a reasoning format; None if there is none whose end could be told."""
    if format_name is None:
        return None
    written = plugins.load("parsing.reasoning", format_name).FORMAT
    if not written.closes:
        return None
    if isinstance(written, ReasoningFormat):
        return ReasoningMarkers(written.opens, written.closes, starts_open=written.starts_open)
    begin, end = f"{written.channel}analysis{written.message}", f"{written.ends[0]}{written.start}assistant"
    return ReasoningMarkers((begin,), written.closes, is_optional=False, ends_before_calls=(end,))


def reasoning_of(markers: ReasoningMarkers, tokenizer: Tokenizer, prompt: Sequence[int], is_call: bool = False) -> Reasoning:
    """What a request needs to know; is_call: its grammar is of tool calls.

    The prompt has closed the reasoning where nothing but blanks follows the last marker, an end."""
    if is_call and markers.ends_before_calls:
        markers = replace(markers, ends=markers.ends_before_calls, is_optional=True)
    starts = [_marker(text, tokenizer) for text in markers.starts]
    ends = [_marker(text, tokenizer) for text in markers.ends]
    return Reasoning(starts, ends, _state(markers, tokenizer, prompt), markers.is_optional)


def _marker(text: str, tokenizer: Tokenizer) -> Marker:
    """By its ids where a special token is among them: then text that spells it is no marker."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    added = tokenizer.added_tokens
    return Marker(ids, "" if any(index in added for index in ids) else text)


def _state(markers: ReasoningMarkers, tokenizer: Tokenizer, prompt: Sequence[int]) -> ReasoningState:
    tail = tokenizer.decode(prompt[-TAIL:], skip_special_tokens=False).rstrip()
    if any(tail.endswith(text.rstrip()) for text in markers.ends):
        return ReasoningState.CLOSED
    if any(tail.endswith(text.rstrip()) for text in markers.starts):
        return ReasoningState.OPEN
    return ReasoningState.OPEN if markers.starts_open else ReasoningState.BEFORE
