"""Executor: where steps run. Every way to run workers has this interface; steps run in the order in which they are submitted."""

from typing import Any, Protocol

from octavo.config.config import Config
from octavo.kvcache.specs import CachePlan
from octavo.kvcache.worker_facts import WorkerFacts
from octavo.protocol.step import StepMasks, StepPlan, StepResult


class Executor(Protocol):
    def launch(self) -> None:
        """Begin with what takes time and needs no configuration; start() does it if nobody has."""
        ...

    def start(self, config: Config) -> WorkerFacts:
        """Load the model. Raises the OctavoError that the worker met."""
        ...

    def initialize_cache(self, plan: CachePlan) -> None:
        """Allocate the cache; to be called once, before the first step."""
        ...

    def submit(self, plan: StepPlan) -> None:
        """Hand over a step; does not wait for it."""
        ...

    def submit_masks(self, masks: StepMasks) -> None:
        """Hand over the masks that a submitted step with awaits_masks waits for."""
        ...

    def collect(self, timeout_s: float | None = None) -> StepResult | None:
        """The result of the oldest step not yet collected, or None if the time is over. Raises EngineDeadError if the worker died."""
        ...

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a named method of the worker; only while no step is outstanding."""
        ...

    def check(self) -> None:
        """Raise EngineDeadError if the worker is dead. Costs next to nothing."""
        ...

    def shutdown(self) -> None:
        """End the worker and wait for it. Can be called twice."""
        ...
