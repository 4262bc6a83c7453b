"""The worker on a thread of this process: nothing is encoded, and torch lives where the engine core lives."""

import queue
from typing import Any

from octavo import plugins
from octavo.config.config import Config
from octavo.errors import EngineDeadError
from octavo.kvcache.specs import CachePlan
from octavo.kvcache.worker_facts import WorkerFacts
from octavo.protocol.failure import revive
from octavo.protocol.messages import Dead
from octavo.protocol.step import StepMasks, StepPlan, StepResult


class InProcess:
    """An Executor."""

    def __init__(self) -> None:
        self._results: queue.SimpleQueue[StepResult] = queue.SimpleQueue()
        self._values: queue.SimpleQueue[tuple[Any] | Dead] = queue.SimpleQueue()
        self._compute: Any = None

    def launch(self) -> None:
        plugins.load("worker", "compute")

    def start(self, config: Config) -> WorkerFacts:
        self._compute = plugins.load("worker", "compute").ComputeThread(self._answer)
        self._compute.start(config)
        try:
            facts = self._value()
        except BaseException:
            self.shutdown()
            raise
        assert isinstance(facts, WorkerFacts)
        return facts

    def initialize_cache(self, plan: CachePlan) -> None:
        self._compute.initialize_cache(plan)
        self._value()

    def submit(self, plan: StepPlan) -> None:
        self._compute.step(plan)

    def submit_masks(self, masks: StepMasks) -> None:
        self._compute.masks(masks)

    def collect(self, timeout_s: float | None = None) -> StepResult | None:
        self.check()
        try:
            return self._results.get(timeout=timeout_s) if timeout_s != 0 else self._results.get_nowait()
        except queue.Empty:
            return None

    def call(self, method: str, *arguments: Any) -> Any:
        self._compute.call(method, list(arguments))
        return self._value()

    def check(self) -> None:
        if self._compute is None:
            raise EngineDeadError("the worker has been shut down")

    def shutdown(self) -> None:
        compute, self._compute = self._compute, None
        if compute is not None:
            compute.stop()

    def _answer(self, answer: Any) -> None:
        if isinstance(answer, StepResult):
            self._results.put(answer)
        else:
            self._values.put(answer)

    def _value(self) -> Any:
        answer = self._values.get()
        if isinstance(answer, Dead):
            raise revive(answer)
        return answer[0]


def create() -> InProcess:
    return InProcess()
