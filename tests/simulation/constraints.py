"""Constraints of the simulation: real ones over a made-up grammar, in which what may follow depends on all tokens before, so that a mask of
another row, or of another step, allows what it must not.
"""

from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np

from octavo.errors import RequestError
from octavo.grammar.backend import Words
from octavo.grammar.constraint import Constraint, Tables
from octavo.grammar.vocabulary import Vocabulary
from octavo.protocol.messages import EngineRequest
from octavo.protocol.sampling_params import StructuredOutputsParams
from octavo.protocol.step import StepMasks
from octavo.scheduler.assembly import Step
from octavo.scheduler.masks import MaskMaker
from tests.simulation.configs import EOS, VOCABULARY

REFUSAL = "the grammar was refused"
REFUSED = -1  # the number of a grammar that is found wrong only when it is compiled


def asked(number: int) -> StructuredOutputsParams:
    """What a request says that obeys grammar `number`."""
    return StructuredOutputsParams(regex=str(number))


@dataclass
class Place:
    """A place in a grammar: its number, how many tokens led here, and a digest of them. It is a back end's matcher, too."""

    number: int
    count: int = 0
    digest: int = 0
    error: str | None = None

    @property
    def allowed(self) -> list[int]:
        """One to three tokens; the end is seldom among them."""
        return sorted(
            {(self.digest * 31 + self.number * 7 + step * (3 + self.count % 4)) % VOCABULARY for step in range(1 + self.digest % 3)}
        )

    @property
    def is_settled(self) -> bool:
        """Whether the next token is told instead of a mask."""
        return self.digest % 4 == 1

    @property
    def may_end(self) -> bool:
        return True

    @property
    def is_complete(self) -> bool:
        return self.count == 3 + self.number % 13

    def fill(self, words: Words) -> None:
        words[:] = sum(1 << token for token in self.allowed)

    def accept(self, token: int) -> bool:
        if token not in self.allowed:
            return False
        self.count += 1
        self.digest = (self.digest * 1_000_003 + token * 97 + self.number + 1) % 1_000_000_007
        return True

    def roll_back(self, count: int) -> None:
        raise NotImplementedError

    def forced(self) -> list[int]:
        return []

    def copy(self) -> "Place":
        return Place(self.number, self.count, self.digest)


class SettledConstraint(Constraint):
    """Some of its tokens are told as such."""

    def forced(self) -> int | None:
        place = self._matcher
        assert isinstance(place, Place)
        return place.allowed[0] if place.is_settled else None


@cache
def tables() -> Tables:
    return Tables(Vocabulary([bytes([97 + token]) for token in range(VOCABULARY)], {}, [EOS], lambda text: []))


class SimulatedConstraints:
    """Makes constraints some turns after they were asked for."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._due: list[tuple[int, Future[Constraint], int]] = []
        self._turn = 0
        self._maker = MaskMaker(1, _fill_all if rng.random() < 0.5 else None)
        self.num_masks = self.num_forced = 0

    def begin(self, message: EngineRequest, room: int) -> Future[Constraint] | None:
        if message.sampling is None or message.sampling.structured_outputs is None:
            return None
        future: Future[Constraint] = Future()
        assert message.sampling.structured_outputs.regex is not None
        self._due.append((self._turn + self._rng.choice([0, 0, 1, 7]), future, int(message.sampling.structured_outputs.regex)))
        return future

    def turn(self) -> None:
        """One turn of the loop has passed."""
        self._turn += 1
        for entry in [entry for entry in self._due if entry[0] <= self._turn]:
            self._due.remove(entry)
            if entry[2] == REFUSED:
                entry[1].set_exception(RequestError(REFUSAL))
            else:
                entry[1].set_result(SettledConstraint(tables(), Place(entry[2]), None))

    def masks(self, step: Step) -> StepMasks:
        made = self._maker.make(step)
        self.num_masks += len(made.rows) // 4
        self.num_forced += len(made.forced_rows) // 4
        return made


def _fill_all(matchers: list[Place], masks: np.ndarray) -> None:
    for matcher, words in zip(matchers, masks):
        matcher.fill(words)
