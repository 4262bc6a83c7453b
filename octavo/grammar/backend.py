"""What a library for grammars does for us: a file in backends/ has a class Backend with these methods, and a function check(grammar) that
raises RequestError for what Backend.compile would refuse, without a vocabulary and without loading much: the front end calls it."""

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from octavo.grammar.grammar import Grammar
from octavo.grammar.vocabulary import Vocabulary

Words = npt.NDArray[np.int32]  # a mask, 32 tokens a word, lowest bit first, 1 = allowed


class Matcher(Protocol):
    """Where a text stands in a grammar. Not for two threads at a time."""

    def fill(self, words: Words) -> None:
        """Which tokens may follow. All zero when the matcher has failed."""

    def accept(self, token: int) -> bool:
        """The text goes on with this token. False, and it stays where it is, if it may not."""

    def roll_back(self, count: int) -> None:
        """Forget so many of the last tokens."""

    def forced(self) -> list[int]:
        """Tokens that must follow, as far as that is easily told."""

    def copy(self) -> Self:
        """One that goes its own way from here."""

    @property
    def may_end(self) -> bool:
        """Whether the text is whole as it stands."""

    @property
    def is_complete(self) -> bool:
        """Whether it is whole and nothing may follow."""

    @property
    def error(self) -> str | None:
        """Why the matcher has failed: some limit of work was met."""


class Backend(Protocol):
    """Made for one vocabulary; making it takes a second, so it happens once, off the engine's loop."""

    def __init__(self, vocabulary: Vocabulary) -> None: ...

    def compile(self, grammar: Grammar) -> Matcher:
        """A matcher at the beginning of a text. Raises RequestError for a grammar that the library refuses."""

    def fill_all(self, matchers: Sequence[Any], masks: npt.NDArray[np.int32]) -> None:
        """The mask of each matcher, into the row of the same number."""
