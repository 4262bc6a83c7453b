"""Worker: one rank's model, cache and rows. Everything here runs on the compute thread."""

import math
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from octavo import plugins
from octavo.config.config import Config
from octavo.config.in_use import Hold
from octavo.config.numbers import gib
from octavo.device.arena import Arena
from octavo.device.device import Device
from octavo.kvcache.plan import plan_cache
from octavo.kvcache.specs import CachePlan, LayerState
from octavo.kvcache.worker_facts import WorkerFacts
from octavo.loading.build import build, build_meta
from octavo.logging import get_logger
from octavo.ops import kernels
from octavo.protocol.step import StepMasks, StepPlan, StepResult, StepTimings
from octavo.sampling.pipeline import Pipeline
from octavo.worker.cache import Cache, formats_told
from octavo.worker.execution import Execution
from octavo.worker.measure import least_cache_bytes, measure_arena
from octavo.worker.memory import Ledger, Reservation, is_out_of_memory, loading_error
from octavo.worker.rows import Rows
from octavo.worker.warm_up import num_blocks, warm_up

logger = get_logger(__name__)

# what Executor.call may name
CALLS = frozenset({"touch_cache", "memory_report", "ping", "begin_profile", "end_profile", "read_gb_s"})

WaitForMasks = Callable[[int], StepMasks | None]


class Worker:
    """start, then initialize_cache, then any number of steps."""

    def __init__(self) -> None:
        self._reservation = Reservation()
        self._hold = Hold()

    def start(self, config: Config) -> WorkerFacts:
        """Load the model and find out how much memory is left for the cache.

        Raises MemoryPlanError, before the weights are read where sizes tell already; and what loading raises.
        """
        torch.set_grad_enabled(False)
        self._config = config
        self._device: Device = plugins.load("device", config.device.device).create(config.device)
        self._team = kernels.team(self._device.kind)
        self._ledger = Ledger(self._device, config.cache.memory_utilization, config.cache.memory_bytes, self._reservation)
        self._hold.add([config.model.path, config.model.tokenizer_path])
        self._ledger.check_device()
        meta = build_meta(config, self._device.kind)
        self._ledger.check_sizes(
            meta.weights_bytes, measure_arena(meta.model, config, self._pipeline()), least_cache_bytes(meta.model, config)
        )
        try:
            self._load()
        except Exception as error:
            if is_out_of_memory(error):
                raise loading_error(error, self._ledger) from error
            raise
        self._hold.add([kernels.folder(self._device.kind)])
        self._ledger.close_books()
        self._log()
        return self._facts()

    def initialize_cache(self, plan: CachePlan) -> None:
        """Map the cache and give each layer its part. Nothing of it is resident until it is written."""
        self._bind(plan)

    def run(self, plan: StepPlan, wait_for_masks: WaitForMasks) -> StepResult:
        """Never raises: what fails whole is the result's `failure`, and the next step runs."""
        started = time.monotonic()
        try:
            self._team.keep_apart()
            result = self._execution.run(plan, wait_for_masks)
        except Exception as error:
            logger.exception("step %d failed", plan.step)
            result = StepResult(plan.step, rows=plan.rows, epochs=plan.epochs, failure=f"{type(error).__name__}: {error}")
        timings = result.timings or StepTimings()
        timings.started, timings.ended = started, time.monotonic()
        result.timings = timings
        return result

    def touch_cache(self) -> int:
        """Make every page of the cache resident, changing nothing in it. Gives its size in bytes."""
        self._cache.touch()
        return self._cache.plan.total_bytes

    def memory_report(self) -> dict[str, int]:
        """Bytes that the plan says, part by part; of the runtime what it takes and what is kept for it; `used_bytes`: what the process
        holds now.
        """
        ledger = self._ledger
        return {
            "runtime_bytes": ledger.runtime_bytes,
            "kept_runtime_bytes": ledger.kept_runtime_bytes,
            "weights_bytes": ledger.weights_bytes,
            "arena_bytes": ledger.arena_bytes,
            "cache_bytes": self._cache.plan.total_bytes,
            "budget_bytes": ledger.budget_bytes,
            "used_bytes": self._device.used_bytes(),
        }

    def ping(self) -> bool:
        return True

    def begin_profile(self) -> None:
        """Time every kernel from now on."""
        self._profile = plugins.load("worker", "profile").Profile(self._built.model)
        self._profile.begin()

    def end_profile(self) -> list[dict[str, Any]]:
        """What the kernels took since begin_profile."""
        found: list[dict[str, Any]] = self._profile.end()
        return found

    def read_gb_s(self) -> float:
        """How fast this worker's threads read memory now."""
        return float(plugins.load("worker", "profile").read_gb_s())

    def forget(self) -> None:
        """The other instances on this machine need not reckon with this one any more."""
        self._reservation.release()
        self._hold.release()

    def close(self) -> None:
        """Give back the memory, when the process lives on."""
        self.forget()
        for name in ("_execution", "_cache", "_built", "_arena"):
            self.__dict__.pop(name, None)

    def _load(self) -> None:
        self._built = build(self._config, self._device, _progress() if self._config.load_progress else None)
        buffer = self._device.allocate(self._ledger.arena_bytes)
        buffer.zero_()  # resident now, so that what is measured afterwards is the runtime
        self._arena = Arena(buffer)
        states = self._states()
        # blocks for as many groups as there can be: one a layer
        blocks = num_blocks(self._config, len(states))
        self._bind(plan_cache(states, self._config.cache.block_size, 0, num_blocks_override=blocks))
        warm_up(lambda plan: self.run(plan, lambda step: None), self._config, self._cache.plan)

    def _bind(self, plan: CachePlan) -> None:
        self.__dict__.pop("_execution", None)  # the rows of a former cache go before the new one comes
        self._cache = Cache(plan, self._device, self._built.model)
        scheduler = self._config.scheduler
        rows = Rows(scheduler.max_num_seqs, self._config.model.max_model_len, len(plan.groups), plan.block_size)
        self._execution = Execution(self._config, self._built.model, self._cache, rows, self._arena, self._pipeline())

    def _pipeline(self) -> Pipeline:
        model = self._config.model
        return Pipeline(
            num_rows=self._config.scheduler.max_num_seqs,
            vocab_size=model.vocab_size,
            num_tokens=model.sampled_ids,
            logprobs_mode=model.logprobs_mode,
            mode=self._config.device.op_implementations,
            device=self._device.kind,
        )

    def _states(self) -> list[LayerState]:
        return [LayerState(name, layer.spec()) for name, layer in self._built.model.attention_layers().items()]

    def _facts(self) -> WorkerFacts:
        ledger = self._ledger
        return WorkerFacts(
            states=self._states(),
            vocab_size=self._config.model.vocab_size,
            block_multiple=math.lcm(*(layer.backend.block_multiple for layer in self._built.model.attention_layers().values())),
            device_total_bytes=ledger.total_bytes,
            device_available_bytes=ledger.free_bytes,
            budget_bytes=ledger.budget_bytes,
            runtime_bytes=ledger.kept_runtime_bytes,
            weights_bytes=ledger.weights_bytes,
            arena_bytes=ledger.arena_bytes,
            cache_budget_bytes=ledger.cache_budget_bytes,
            choices=self._choices(),
            pids=[os.getpid()],
        )

    def _choices(self) -> dict[str, str]:
        return {**self._built.choices, **self._pipeline().choices}

    def _log(self) -> None:
        logger.info("Device: %s", self._device.description)
        for op, choice in sorted(self._choices().items()):
            logger.info("  %-18s %s", op, choice)
        logger.info("  %-18s %s", "KV cache", formats_told(self._built.model))
        logger.info("Kernels: %s", kernels.told(self._device.kind))


def _progress() -> Callable[[int, int], None]:
    """Tells the log of loading, at most once in two seconds."""
    last = time.monotonic()

    def told(read_bytes: int, all_bytes: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= 2:
            last = now
            logger.info("Loading weights: %s of %s", gib(read_bytes), gib(all_bytes))

    return told
