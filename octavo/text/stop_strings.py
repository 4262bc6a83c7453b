"""Stop strings: found wherever token borders lie, and no more text is held back than could still become one.

The stop that is completed first ends the text (of several completed by the same character, the longest), so the answer does not depend on
how the text was cut into tokens. Held back is the longest end of the text that begins a stop string, which is the state of the matching
automaton (Aho and Corasick, Efficient string matching, 1975), and the rest of the token in which it begins: a token's text, a marker's
say, is never sent in two parts.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StopMatch:
    """stop: the string found. num_tokens: tokens up to and with the one that completed it. text_length: characters of the final text."""

    stop: str
    num_tokens: int
    text_length: int


@dataclass(slots=True, eq=False)
class _State:
    depth: int = 0
    next: dict[str, "_State"] = field(default_factory=dict)
    fail: "_State | None" = None
    stop: str | None = None  # the longest stop string that ends here

    def step(self, character: str) -> "_State":
        state: _State = self
        while (found := state.next.get(character)) is None:
            if state.fail is None:
                return state
            state = state.fail
        return found


class StopStrings:
    """The stop strings of one request, over one generated sequence.

    min_tokens: no stop is seen that is complete before so many tokens were added.
    """

    def __init__(self, stops: Sequence[str], include_in_output: bool = False, min_tokens: int = 0) -> None:
        self._root = _automaton(stops)
        self._state = self._root
        self._firsts = frozenset(stop[0] for stop in stops if stop)
        self._include = include_in_output
        self._min_tokens = min_tokens
        self._held = ""
        self._borders: list[int] = []  # where tokens begin in what is held
        self._sent = 0  # characters
        self._num_tokens = 0
        self.match: StopMatch | None = None

    def add(self, piece: str) -> str:
        """The text of the next token, as a Detokenizer gives it; returns what may be sent now. Once `match` is set there is no more."""
        self._num_tokens += 1
        return self._take(piece)

    def finish(self, piece: str = "") -> str:
        """The sequence has ended, with `piece` of the Detokenizer's flush: returns the rest of the text."""
        return self._take(piece) + self.flush()

    def flush(self) -> str:
        """What was held back, when no stop string came of it."""
        rest, self._held, self._borders = self._held, "", []
        self._sent += len(rest)
        self._state = self._root
        return rest

    def _take(self, piece: str) -> str:
        if self.match is not None or not piece:
            return ""
        if self._state is self._root and self._firsts.isdisjoint(piece):
            self._sent += len(piece)
            return piece
        state = self._state
        for index, character in enumerate(piece):
            state = state.step(character)
            if state.stop is not None and self._num_tokens >= self._min_tokens:
                return self._end(self._held + piece[: index + 1], state.stop)
        while not state.next and state.fail is not None:  # a whole stop string, too early to count: only its end can begin another
            state = state.fail
        self._state = state
        text = self._held + piece
        borders = [*self._borders, len(self._held)]
        border = len(text) if state is self._root else max(b for b in borders if b <= len(text) - state.depth)
        self._held, self._borders = text[border:], [b - border for b in borders if b >= border]
        self._sent += border
        return text[:border]

    def _end(self, text: str, stop: str) -> str:
        text = text if self._include else text[: len(text) - len(stop)]
        self._held = ""
        self._sent += len(text)
        self.match = StopMatch(stop, self._num_tokens, self._sent)
        return text


def _automaton(stops: Sequence[str]) -> _State:
    root = _State()
    for stop in filter(None, stops):
        state = root
        for character in stop:
            state = state.next.setdefault(character, _State(state.depth + 1))
        state.stop = stop
    queue = deque([root])
    while queue:
        state = queue.popleft()
        for character, child in state.next.items():
            child.fail = root if state.fail is None else state.fail.step(character)
            child.stop = child.stop or child.fail.stop
            queue.append(child)
    return root
