"""Thinking: whether a model's text is still its reasoning, told by markers; how long it may be; what ends it when it is too long."""

from collections.abc import Sequence

from octavo.protocol.messages import Marker, Reasoning, ReasoningState

TAIL = 512  # bytes that are looked back for a marker of text


class Thinking:
    """Fed with every token of the output.

    budget: most tokens of reasoning, markers not counted; None = any number. is_binding: something waits for its end, so that it begins
    at the beginning or not at all; otherwise it may begin anywhere, and again.
    """

    def __init__(self, reasoning: Reasoning, budget: int | None, tokens: Sequence[bytes], is_binding: bool) -> None:
        self.reasoning = reasoning
        self.state = ReasoningState(reasoning.state)
        self.was_skipped = False  # closed without any marker: what there is belongs to the answer
        self._budget = budget
        self._tokens = tokens
        self._is_binding = is_binding
        self._count = 0
        self._ids: list[int] = []  # the newest tokens
        self._text = b""  # the newest bytes
        self._longest = max((len(marker.ids) for marker in (*reasoning.starts, *reasoning.ends)), default=1)
        self._forcing: list[int] = []

    @property
    def is_open(self) -> bool:
        return self.state is ReasoningState.OPEN

    @property
    def is_over(self) -> bool:
        return self.state is ReasoningState.CLOSED

    def accept(self, token: int) -> None:
        """The next token of the output."""
        was_forced = bool(self._forcing) and self._forcing.pop(0) == token
        self._ids = [*self._ids[-self._longest :], token]
        data = self._tokens[token] if 0 <= token < len(self._tokens) else b""
        self._text = (self._text + data)[-TAIL:]
        if self.is_open:
            self._count += 1
            if self._ends_with(self.reasoning.ends):
                self._turn(ReasoningState.CLOSED)
            elif not was_forced:
                self._forcing = []
        elif self._ends_with(self.reasoning.starts):
            if self.state is ReasoningState.BEFORE or not self._is_binding:
                self.was_skipped = False  # a marker of several tokens looked like an answer until now
                self._turn(ReasoningState.OPEN)
        elif self.state is ReasoningState.BEFORE and self._is_binding:
            self.was_skipped = not self._ends_with(self.reasoning.ends)
            if not (self.was_skipped and self.openers()):
                self._turn(ReasoningState.CLOSED)

    def openers(self) -> list[int]:
        """Before anything: tokens that begin a marker, or go on with one that the output has begun with."""
        if self.state is not ReasoningState.BEFORE:
            return []
        seen, reasoning = self._ids, self.reasoning
        markers = reasoning.starts if reasoning.is_optional else [*reasoning.starts, *reasoning.ends]
        return [each.ids[len(seen)] for each in markers if len(each.ids) > len(seen) and each.ids[: len(seen)] == seen]

    @property
    def cost_of_end(self) -> int:
        """Tokens that it takes to end the reasoning now."""
        return len(self._ending()) if self.is_open else 0

    @property
    def cost_of_all(self) -> int:
        """Tokens of the markers alone, for reasoning that has not begun."""
        return max((len(marker.ids) for marker in self.reasoning.starts), default=0) + len(self.reasoning.ends[0].ids)

    def forced(self, ends_now: bool = False) -> int | None:
        """The token that must follow, once the budget is spent; ends_now: as if it were."""
        if not self.is_open:
            return None
        if not self._forcing and (ends_now or (self._budget is not None and self._count >= self._budget)):
            self._forcing = self._ending()
        return self._forcing[0] if self._forcing else None

    def _ending(self) -> list[int]:
        """What writes the end, without what of it stands there already."""
        ids = self.reasoning.ends[0].ids
        for size in range(min(len(ids) - 1, len(self._ids)), 0, -1):
            if self._ids[-size:] == ids[:size]:
                return ids[size:]
        return list(ids)

    def _turn(self, state: ReasoningState) -> None:
        self.state = state
        self._forcing = []
        self._text = b""
        self._ids = []

    def _ends_with(self, markers: Sequence[Marker]) -> bool:
        """By ids; a marker that is plain text by its text, since it can be written in several ways."""
        for marker in markers:
            if marker.text:
                if marker.text.encode() in self._text:
                    return True
            elif self._ids[-len(marker.ids) :] == marker.ids:
                return True
        return False
