"""Reading: what an answer says while its tokens come: text as it is, or taken apart into reasoning, content and calls.

A stop string ends a text as it is, and of an answer that is taken apart the content: it is not looked for in reasoning and arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from octavo.parsing.events import Content, Event, Parser, Piece, Reasoning, ToolCall, join
from octavo.protocol.outputs import CompletionOutput
from octavo.protocol.sampling_params import SamplingParams
from octavo.text.detokenizer import Detokenizer
from octavo.text.stop_strings import StopStrings
from octavo.text.tokenizer import Tokenizer

TOOL_CALLS = "tool_calls"  # the finish_reason of an answer that ends with calls
MarkerIds = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class Reader:
    """How the answers to one request are taken apart.

    open: a new parser, given the id of each marker that is one token. keeps_one_call: an answer ends where its second call would begin.
    counts_reasoning: the model may think, and tokens of thought are counted.
    """

    open: Callable[[MarkerIds], Parser]
    keeps_one_call: bool = False
    counts_reasoning: bool = False


class Reading(Protocol):
    """One answer."""

    parts: list[str]  # the text, in pieces
    events: list[Event] | None  # what it says, where it is taken apart
    has_calls: bool
    num_reasoning_tokens: int | None

    @property
    def is_ended(self) -> bool:
        """It ended before its last token: no more is read."""
        ...

    @property
    def stop(self) -> str | None:
        """The stop string that ended it."""
        ...

    def add(self, token_id: int, is_hidden: bool) -> None:
        """The next token. is_hidden: it ends the answer, and its text is no part of it."""
        ...

    def finish(self, is_cut_off: bool) -> None:
        """No more comes. is_cut_off: the model had not come to its end."""
        ...


class Plain:
    """Text as it is."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, prompt_ids: list[int]) -> None:
        self.parts: list[str] = []
        self.events: list[Event] | None = None
        self.has_calls = False
        self.num_reasoning_tokens: int | None = None
        self._detokenizer = Detokenizer(
            tokenizer,
            prompt_ids,
            skip_special_tokens=params.skip_special_tokens,
            spaces_between_special_tokens=params.spaces_between_special_tokens,
        )
        self._stops = _stops_of(params)

    @property
    def is_ended(self) -> bool:
        return self.stop is not None

    @property
    def stop(self) -> str | None:
        return None if self._stops is None or self._stops.match is None else self._stops.match.stop

    def add(self, token_id: int, is_hidden: bool) -> None:
        piece = "" if is_hidden else self._detokenizer.add(token_id)
        self.parts.append(piece if self._stops is None else self._stops.add(piece))

    def finish(self, is_cut_off: bool) -> None:
        rest = self._detokenizer.flush()
        self.parts.append(rest if self._stops is None else self._stops.finish(rest))


class Parted:
    """An answer that a parser takes apart; `parts` is all of it as the model wrote it, markers included."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, prompt_ids: list[int], reader: Reader) -> None:
        self.parts: list[str] = []
        self.events: list[Event] | None = []
        self.has_calls = False
        self.num_reasoning_tokens: int | None = 0 if reader.counts_reasoning else None
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(
            tokenizer, prompt_ids, skip_special_tokens=False, spaces_between_special_tokens=params.spaces_between_special_tokens
        )
        self._stops = _stops_of(params)
        self._keeps_one_call = reader.keeps_one_call
        self._markers: set[int] = set()
        self._parser = reader.open(self._marker_id)
        self._apart = self._markers | tokenizer.special_ids  # tokens whose text stands for itself, whatever is beside it
        self._has_second_call = False
        self._num_open = 0  # tokens that have not said yet whether they are reasoning

    @property
    def is_ended(self) -> bool:
        return self._has_second_call or self.stop is not None

    @property
    def stop(self) -> str | None:
        return None if self._stops is None or self._stops.match is None else self._stops.match.stop

    def add(self, token_id: int, is_hidden: bool) -> None:
        if self._stops is not None:
            self._stops.count_token()
        pieces = self._pieces(token_id, is_hidden)
        self.parts += [piece.text for piece in pieces]
        events = self._parser.feed(pieces)
        self._count(events, is_marker=token_id in self._markers)
        self._take(events)

    def finish(self, is_cut_off: bool) -> None:
        rest = self._detokenizer.flush()
        self.parts.append(rest)
        events = self._parser.feed([Piece(rest)]) if rest else []
        events += self._parser.finish(is_cut_off)
        self._count(events, is_marker=True)
        self._take(events)
        if self._stops is not None and not self.is_ended:
            self._tell(Content(self._stops.flush()))

    def _marker_id(self, text: str) -> int | None:
        token_id = self._tokenizer.token_to_id(text)
        if token_id is None or token_id not in self._tokenizer.added_ids:
            return None
        self._markers.add(token_id)
        return token_id

    def _pieces(self, token_id: int, is_hidden: bool) -> list[Piece]:
        if token_id not in self._apart:
            return [] if is_hidden else [Piece(self._detokenizer.add(token_id), token_id)]
        torn = self._detokenizer.flush()
        self._detokenizer.add(token_id)  # the next word's space depends on what stands before it
        text = "" if is_hidden else self._tokenizer.id_to_token(token_id) or ""
        own = Piece(text, token_id, is_special=True)
        return [Piece(torn), own] if torn else [own]

    def _count(self, events: list[Event], is_marker: bool) -> None:
        """Tokens of thought: those whose text came as reasoning, at once or when it was certain."""
        if self.num_reasoning_tokens is None:
            return
        self._num_open += not is_marker
        if events:
            self.num_reasoning_tokens += self._num_open if any(isinstance(event, Reasoning) for event in events) else 0
            self._num_open = 0

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if self.is_ended:
                return
            if isinstance(event, ToolCall):
                if self._keeps_one_call and event.index > 0:
                    self._has_second_call = True
                    return
                self.has_calls = True
            if self._stops is None:
                self._tell(event)
            elif isinstance(event, Content):
                self._tell(Content(self._stops.take(event.text)))
            else:
                self._tell(Content(self._stops.flush()))
                self._tell(event)

    def _tell(self, event: Event) -> None:
        assert self.events is not None
        if not isinstance(event, Content) or event.text:
            self.events.append(event)


def reading_of(tokenizer: Tokenizer, params: SamplingParams, prompt_ids: list[int], reader: Reader | None) -> Reading:
    """A reading of an answer to a prompt."""
    return Plain(tokenizer, params, prompt_ids) if reader is None else Parted(tokenizer, params, prompt_ids, reader)


def take_apart(output: CompletionOutput, tokenizer: Tokenizer, params: SamplingParams, prompt_ids: list[int], reader: Reader) -> None:
    """Let an answer that is whole already tell its events."""
    reading = Parted(tokenizer, params, prompt_ids, reader)
    for token_id in output.token_ids:
        reading.add(token_id, is_hidden=False)
        if reading.is_ended:
            break
    else:
        reading.finish(is_cut_off=output.finish_reason != "stop")
    output.events, output.num_reasoning_tokens = join(reading.events or []), reading.num_reasoning_tokens
    if reading.has_calls and output.finish_reason == "stop":
        output.finish_reason = TOOL_CALLS


def _stops_of(params: SamplingParams) -> StopStrings | None:
    if not params.stop:
        return None
    return StopStrings(params.stop, include_in_output=params.include_stop_str_in_output, min_tokens=params.min_tokens)
