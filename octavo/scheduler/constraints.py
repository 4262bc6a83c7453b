"""What the scheduler asks of whoever makes constraints."""

from concurrent.futures import Future
from typing import Protocol

from octavo.grammar.constraint import Constraint
from octavo.protocol.messages import EngineRequest
from octavo.protocol.step import StepMasks
from octavo.scheduler.assembly import Step


class Constraints(Protocol):
    def begin(self, message: EngineRequest, room: int) -> Future[Constraint] | None:
        """The constraint of a request that may gain `room` tokens, made on a thread; None if it asks for none."""

    def masks(self, step: Step) -> StepMasks:
        """What the rows of a step may say."""


class NoConstraints:
    """For an engine without a tokenizer."""

    def begin(self, message: EngineRequest, room: int) -> Future[Constraint] | None:
        return None

    def masks(self, step: Step) -> StepMasks:
        return StepMasks(step.number)
