"""The compute thread: the one thread of a process that touches torch and numba. Steps and calls run on it in the order they came."""

import queue
import threading
from collections.abc import Callable
from typing import Any

from octavo.config.config import Config
from octavo.errors import OctavoError
from octavo.kvcache.specs import CachePlan
from octavo.logging import get_logger
from octavo.protocol.failure import describe
from octavo.protocol.messages import Dead
from octavo.protocol.step import StepMasks, StepPlan, StepResult
from octavo.worker.worker import CALLS, Worker

logger = get_logger(__name__)

# what the thread answers: a step's result; the value of a call; the error of a call
Answer = StepResult | tuple[Any] | Dead


class ComputeThread:
    """Owns the worker. `answer` is called on the thread, once for each thing handed over, in order."""

    def __init__(self, answer: Callable[[Answer], None]) -> None:
        self._answer = answer
        self._jobs: queue.SimpleQueue[Callable[[], Answer] | None] = queue.SimpleQueue()
        self._masks: queue.SimpleQueue[StepMasks | None] = queue.SimpleQueue()
        self._worker = Worker()
        self._thread = threading.Thread(target=self._run, name="octavo-compute", daemon=True)
        self._thread.start()

    def start(self, config: Config) -> None:
        """Answers with WorkerFacts."""
        self._jobs.put(lambda: self._call(self._worker.start, config))

    def initialize_cache(self, plan: CachePlan) -> None:
        self._jobs.put(lambda: self._call(self._worker.initialize_cache, plan))

    def step(self, plan: StepPlan) -> None:
        """Answers with a StepResult, whatever happens."""
        self._jobs.put(lambda: self._worker.run(plan, self._next_masks))

    def masks(self, masks: StepMasks) -> None:
        self._masks.put(masks)

    def call(self, method: str, arguments: list[Any]) -> None:
        def run() -> Answer:
            if method not in CALLS:
                return describe(OctavoError(f"the worker has no method {method!r}", f"known: {', '.join(sorted(CALLS))}"))
            return self._call(getattr(self._worker, method), *arguments)

        self._jobs.put(run)

    def stop(self) -> None:
        """End after what is queued, and give the model's memory back."""
        self._masks.put(None)
        self._jobs.put(None)
        self._thread.join()

    def forget(self) -> None:
        """Take back what other instances were told, from any thread; for a process that is about to end."""
        self._worker.forget()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._answer(job())
            del job  # holds the plan until the next one comes
        self._worker.close()

    def _next_masks(self, step: int) -> StepMasks | None:
        """Wait for the masks of `step`. None: the thread is to end."""
        while (masks := self._masks.get()) is not None:
            if masks.step >= step:  # older ones are of a step that failed before it asked for them
                return masks
        return None

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Answer:
        try:
            return (method(*arguments),)
        except OctavoError as error:
            return describe(error)
        except Exception as error:
            logger.exception("a call of the worker failed")
            return describe(error)
