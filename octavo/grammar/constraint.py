"""Constraint: what one request's next token may be, from its grammar, its reasoning and its room. Fed with every token it gains."""

from dataclasses import dataclass

import numpy as np

from octavo.grammar.backend import Matcher, Words
from octavo.grammar.closing import Finder
from octavo.grammar.numbers import NumberRun, number_tokens
from octavo.grammar.thinking import Thinking
from octavo.grammar.vocabulary import Vocabulary

WINDOW = 256  # tokens before the last one in which the end of a JSON document is looked for after each token
NARROW_WINDOW = 64  # the same of any other text, whose end takes longer to find
SPACING = 16  # before that, after each so many


class Tables:
    """What is made once of a vocabulary, for all constraints."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = vocabulary.tokens
        self.words = vocabulary.words
        self.no_numbers = number_tokens(vocabulary.tokens)
        self.finder = Finder(vocabulary.tokens, set(vocabulary.specials.values()) - set(vocabulary.eos_token_ids))
        bits = np.ones(32 * self.words, np.uint8)
        bits[[token for token in vocabulary.eos_token_ids if 0 <= token < len(bits)]] = 0
        self.no_ends = np.packbits(bits, bitorder="little").view(np.int32)


@dataclass(slots=True)
class Ending:
    """How a document is brought to its end. room: tokens that may still come. path: an end of it from where it stands."""

    room: int
    path: list[int]
    is_begun: bool = False
    unchecked: int = 0


class Constraint:
    """matcher: at the beginning of the grammar; None for a request that only has a budget for its reasoning.

    is_json: the text is one JSON document. room: with it, a text is closed within so many tokens. Raises ValueError if no end is so near.
    """

    def __init__(
        self, tables: Tables, matcher: Matcher | None, thinking: Thinking | None, *, is_json: bool = False, room: int | None = None
    ) -> None:
        self._tables = tables
        self._matcher = matcher
        self._thinking = thinking
        self._is_json = is_json
        self._early: Matcher | None = None  # in the grammar while it is open whether the output begins with reasoning
        self._numbers = NumberRun(has_strings=is_json)
        self._ending: Ending | None = None
        self.error: str | None = None
        self.is_complete = False
        if matcher is not None and thinking is not None and not thinking.is_over and thinking.reasoning.is_optional:
            self._early = matcher.copy()
        if matcher is not None and room is not None:
            path = tables.finder.find(matcher, room, is_json)
            if path is None:
                raise ValueError(f"no text that the grammar allows was found that ends within max_tokens ({room})")
            self._ending = Ending(room, path)

    # --- what may follow

    def forced(self) -> int | None:
        """The one token that must follow, if it is settled."""
        ending, thinking = self._ending, self._thinking
        if thinking is not None and not thinking.is_over:
            is_late = ending is not None and ending.room <= len(ending.path) + thinking.cost_of_end + 1
            return thinking.forced(ends_now=is_late)
        if ending is not None and ending.is_begun and ending.path:
            return ending.path[0]
        return None

    def fill(self, words: Words) -> None:
        """The mask of the next token."""
        matcher = self._matcher
        if matcher is None:
            words[:] = -1
            return
        if self.error is not None:
            words[:] = 0
            return
        thinking = self._thinking
        if thinking is None or thinking.is_over:
            self._fill(matcher, words)
        elif thinking.is_open:
            words[:] = self._tables.no_ends  # an answer that is nothing but reasoning obeys no grammar
        else:
            words[:] = 0
            if self._early is not None:
                self._early.fill(words)
            if self._early is None or self._has_room_to_think(thinking):
                for token in thinking.openers():
                    words[token // 32] |= np.uint32(1 << (token % 32)).astype(np.int32)

    def _has_room_to_think(self, thinking: Thinking) -> bool:
        ending = self._ending
        return ending is None or ending.room > len(ending.path) + thinking.cost_of_all + 1

    def _fill(self, matcher: Matcher, words: Words) -> None:
        matcher.fill(words)
        if matcher.error is not None:
            self.error = f"the grammar is too complex here: {matcher.error}"
        elif self._numbers.is_too_long and (words & self._tables.no_numbers).any():
            words &= self._tables.no_numbers

    @property
    def is_binding(self) -> bool:
        """Whether there is a mask at all; without a grammar nothing is forbidden."""
        return self._matcher is not None

    @property
    def plain_matcher(self) -> Matcher | None:
        """The matcher, where its mask is all that matters: many can then be filled at once."""
        is_plain = (self._thinking is None or self._thinking.is_over) and not self._numbers.is_too_long and self.error is None
        return self._matcher if is_plain else None

    # --- what follows

    def accept(self, token: int) -> bool:
        """The output goes on with this token. False: it may not, since no end would be near enough: it is to be drawn again."""
        thinking = self._thinking
        if thinking is not None and not (self._matcher is not None and thinking.is_over):
            self._think(thinking, token)
            if self._ending is not None:
                self._ending.room -= 1
            return True
        return self._matcher is None or self._take(self._matcher, token)

    def _think(self, thinking: Thinking, token: int) -> None:
        if self._early is not None and not self._early.accept(token):
            self._early = None
        thinking.accept(token)
        if self._matcher is None:
            return
        if thinking.is_over and thinking.was_skipped:  # the answer began with its first token
            if self._early is None:
                self.error = f"token {token} was sampled, which the grammar does not allow"
            else:
                self._matcher = self._early
                self.is_complete = self._matcher.is_complete
        if thinking.is_open or thinking.is_over:
            self._early = None

    def _take(self, matcher: Matcher, token: int) -> bool:
        ending = self._ending
        before = matcher.copy() if ending is not None else None
        if not matcher.accept(token):
            self.error = self.error or f"token {token} was sampled, which the grammar does not allow"
            return True
        if ending is not None and not self._keeps_room(ending, matcher):
            assert before is not None
            self._matcher = before
            ending.path = self._tables.finder.find(before, ending.room, self._is_json) or ending.path
            ending.is_begun = True
            return False
        if 0 <= token < len(self._tables.tokens):
            self._numbers.take(self._tables.tokens[token])
        self.is_complete = matcher.is_complete or (ending is not None and not ending.path and (ending.is_begun or ending.room <= 0))
        return True

    def _keeps_room(self, ending: Ending, matcher: Matcher) -> bool:
        """Whether the text can still end in time; begins its end when that is due."""
        if ending.is_begun:
            ending.room -= 1
            del ending.path[:1]
            return True
        ending.unchecked += 1
        room = ending.room - 1
        if room > (WINDOW if self._is_json else NARROW_WINDOW) and ending.unchecked < SPACING:
            ending.room = room
            return True
        path = self._tables.finder.find(matcher, room, self._is_json)
        if path is None:
            return False
        ending.room, ending.path, ending.unchecked = room, path, 0
        ending.is_begun = len(path) >= room and bool(path)
        return True
