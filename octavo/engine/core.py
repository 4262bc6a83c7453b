"""The engine core: requests in, a plan to the worker, its result back, outputs out. Two loops with the same verbs."""

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from octavo import __version__, environment
from octavo.config.config import Config
from octavo.config.lengths import derived_max_model_len
from octavo.config.numbers import gib
from octavo.engine.executors.executor import Executor
from octavo.errors import ConfigError, EngineDeadError, OctavoError
from octavo.kvcache.plan import blocks_for, bytes_for, cache_tokens, check_max_model_len, fit_max_model_len, no_memory, plan_cache
from octavo.kvcache.remedies import raise_cache_bytes, raise_num_blocks, raise_utilization
from octavo.kvcache.specs import CachePlan
from octavo.kvcache.worker_facts import WorkerFacts
from octavo.logging import get_logger
from octavo.protocol.columns import unpack
from octavo.protocol.messages import (
    Abort,
    Add,
    Call,
    EngineFacts,
    EngineOutput,
    EngineOutputs,
    EngineRequest,
    FinishReason,
    Reply,
    Stop,
    ToCore,
    Unreadable,
)
from octavo.protocol.step import StepPlan, StepResult
from octavo.scheduler.scheduler import Scheduler

logger = get_logger(__name__)

IDLE_WAIT_S = 1.0  # how long one wait for input lasts; the loop then waits again
COLLECT_WAIT_S = 1.0
_LONG = frozenset(("name", "model_type", "path", "hf_config", "generation_config", "chat_template"))  # said already, or pages of it


class Inbox(Protocol):
    """What the front ends send, in order."""

    def get(self, timeout_s: float) -> ToCore | None:
        """The next message; None if the time is over."""
        ...

    def poll(self) -> list[ToCore]:
        """Every message that is there, without waiting."""
        ...


class EngineCore:
    """Owns the scheduler and the executor. start(), then run() until a Stop message; shutdown() at the end, always.

    outbox and reply are called on the thread that runs the loop and must not wait.
    """

    def __init__(
        self,
        config: Config,
        executor: Executor,
        inbox: Inbox,
        outbox: Callable[[EngineOutputs], None],
        reply: Callable[[Reply], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.executor = executor
        self._inbox = inbox
        self._outbox = outbox
        self._reply = reply
        self._clock = clock
        self._outstanding = 0  # steps submitted and not collected
        self._outputs: list[EngineOutput] = []
        self._has_news = False  # something happened that the gauges show
        self._facts: EngineFacts | None = None
        self._iterations: deque[str] = deque()  # of the outstanding steps, for the log

    def start(self) -> EngineFacts:
        """Start the worker and make the cache. Raises the OctavoError that stands in the way, a MemoryPlanError among them."""
        began = self._clock()
        _log_config(self.config)
        worker = self.executor.start(self.config)
        plan, self.config = make_plan(self.config, worker)
        self.executor.initialize_cache(plan)
        self.scheduler = Scheduler(self.config, plan, self._clock, hash_seed=environment.prefix_hash_seed())
        self._facts = facts = _facts(self.config, plan, worker)
        _log_memory(plan, worker, facts, self.config)
        logger.info("init engine (load model, create kv cache) took %.2f s", self._clock() - began)
        return facts

    def run(self) -> None:
        """Serve until a Stop message comes. Raises EngineDeadError when the worker is dead."""
        if self.config.scheduler.overlapped:
            self.run_overlapped()
        else:
            self.run_plain()

    def run_plain(self) -> None:
        """One step at a time: each plan knows every token."""
        while self.handle_inputs():
            plan = self.plan()
            if plan is not None:
                self.submit(plan)
                self.update(self.collect())
            self.deliver()

    def run_overlapped(self) -> None:
        """Step n+1 is planned and handed over while step n computes: the worker never waits for us."""
        while self.handle_inputs():
            plan = self.plan()
            if plan is not None:
                self.submit(plan)
            if self._outstanding > 1 or (plan is None and self._outstanding):
                self.update(self.collect())
            self.deliver()

    def shutdown(self) -> None:
        """End the worker. Can be called twice."""
        self.executor.shutdown()

    def handle_inputs(self) -> bool:
        """Take in what has come; wait for something only if there is nothing to do. False: a Stop came, and all requests are aborted."""
        messages = self._inbox.poll()
        while not messages and not self.scheduler.has_work and not self._outstanding:
            message = self._inbox.get(IDLE_WAIT_S)
            if message is not None:
                messages = [message]
        for message in messages:
            if isinstance(message, Stop):
                self._abort(self.scheduler.request_ids())
                self.deliver()
                return False
            self._handle(message)
        return True

    def plan(self) -> StepPlan | None:
        return self.scheduler.plan()

    def submit(self, plan: StepPlan) -> None:
        self.executor.submit(plan)
        self._outstanding += 1
        if self.config.log_iterations:
            self._iterations.append(describe_step(plan))

    def collect(self) -> StepResult:
        """The result of the oldest outstanding step. Raises EngineDeadError if the worker died."""
        while (result := self.executor.collect(COLLECT_WAIT_S)) is None:
            pass
        self._outstanding -= 1
        if self._iterations:
            times = result.timings
            took = f"{1e3 * times.forward_s:.2f} ms forward, {1e3 * times.sample_s:.2f} ms sampling" if times is not None else "no times"
            logger.info("%s, %s", self._iterations.popleft(), took)
        return result

    def update(self, result: StepResult) -> None:
        self._outputs += self.scheduler.update(result)
        self._has_news = True

    def deliver(self) -> None:
        """Send what this turn gave, with the counts since the last time."""
        if not self._outputs and not self._has_news:
            return
        stats = self.scheduler.take_stats()
        if self._outputs or self.config.log_stats:
            self._outbox(EngineOutputs(self._outputs, stats if self.config.log_stats else None, self._clock()))
        self._outputs, self._has_news = [], False

    def _handle(self, message: ToCore) -> None:
        if isinstance(message, Add):
            self._add(message.request)
        elif isinstance(message, Unreadable):
            self._refuse(message.request_id, message.reason)
        elif isinstance(message, Abort):
            self._abort(message.request_ids)
        elif isinstance(message, Call):
            answer = self._answer(message)
            self.deliver()  # what happened before a call ended is told before its answer
            self._reply(answer)

    def _add(self, request: EngineRequest) -> None:
        self._has_news = True
        try:
            self.scheduler.add(request)
        except OctavoError as error:
            self._refuse(request.request_id, str(error))

    def _refuse(self, request_id: str, reason: str) -> None:
        self._outputs.append(EngineOutput(request_id, finish_reason=FinishReason.ERROR, error=reason))

    def _abort(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            self._outputs += self.scheduler.abort(request_id)

    def _answer(self, call: Call) -> Reply:
        """Run one of the named methods; whatever it raises is told to the caller, except the death of the worker."""
        method = CALLS.get(call.method)
        if method is None:
            return Reply(call.number, error=f"the engine core has no method {call.method!r}; it has {', '.join(sorted(CALLS))}")
        try:
            return Reply(call.number, value=method(self, *call.arguments))
        except EngineDeadError:
            raise
        except Exception as error:  # a call answers; it does not end the loop
            logger.exception("call of %s failed", call.method)
            return Reply(call.number, error=f"{type(error).__name__}: {error}")

    def _call_worker(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker between two steps."""
        while self._outstanding:
            self.update(self.collect())
        return self.executor.call(method, *arguments)

    def _reset_prefix_cache(self) -> bool:
        return self.scheduler.reset_prefix_cache()

    def _tell_facts(self) -> Any:
        return msgspec.structs.asdict(self._facts) if self._facts is not None else None

    def _ping(self) -> bool:
        return True


CALLS: dict[str, Callable[..., Any]] = {
    "worker": EngineCore._call_worker,  # method, *arguments
    "reset_prefix_cache": EngineCore._reset_prefix_cache,
    "facts": EngineCore._tell_facts,
    "ping": EngineCore._ping,
}


def describe_step(plan: StepPlan) -> str:
    """A step for the log. A row that is granted one token generates; one that is granted more has a prompt to compute."""
    counts = unpack(plan.counts)
    prompts = counts > 1
    return (
        f"step {plan.step}: {int(prompts.sum())} requests compute {int(counts[prompts].sum())} tokens of their prompts, "
        f"{int((~prompts).sum())} generate"
    )


def make_plan(config: Config, worker: WorkerFacts) -> tuple[CachePlan, Config]:
    """The cache that the worker's memory allows, and the configuration with max_model_len settled against it.

    Raises MemoryPlanError for a cache that cannot hold one request, ConfigError for a block size that an attention back end cannot use.
    """
    cache, chunk = config.cache, config.scheduler.max_num_batched_tokens
    if cache.block_size % worker.block_multiple:
        raise ConfigError(
            f"block size {cache.block_size} is not a multiple of {worker.block_multiple}, which the attention back end needs",
            f"use a --block-size that is a multiple of {worker.block_multiple}",
        )
    budget = cache_budget(config, worker)
    length = config.model.max_model_len
    larger = larger_cache(config, worker, 1 if config.model.is_max_model_len_auto else length)
    plan = plan_cache(worker.states, cache.block_size, budget, num_blocks_override=cache.num_blocks_override, larger=larger)
    if not config.model.is_max_model_len_auto:
        check_max_model_len(plan, chunk, length, larger)
        return plan, config
    upper = length or derived_max_model_len(config.model.hf_config)
    if not upper:
        raise ConfigError("the model's configuration does not tell its context length", "pass --max-model-len")
    length = fit_max_model_len(plan, chunk, upper)
    if length == 0:
        raise no_memory(budget, larger)
    size = f"{gib(plan.total_bytes)} {config.device.device.upper()}"
    if length < upper:
        logger.info("Auto-fit max_model_len: reduced from %d to %d to fit in available KV cache memory (%s)", upper, length, size)
    else:
        logger.info("Auto-fit max_model_len: full model context length %d fits in available KV cache memory (%s)", length, size)
    return plan, msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, max_model_len=length))


def larger_cache(config: Config, worker: WorkerFacts, length: int) -> str:
    """What to do for a cache that has room for one request of so many tokens: the flag that decides its size, and the value."""
    least = plan_cache(worker.states, config.cache.block_size, 0, num_blocks_override=2)
    needed = bytes_for(least, length, config.scheduler.max_num_batched_tokens)
    if config.cache.num_blocks_override is not None:
        return raise_num_blocks(needed // least.block_bytes)
    if config.cache.memory_bytes is not None:
        return raise_cache_bytes(needed)
    wanted = worker.runtime_bytes + worker.weights_bytes + worker.arena_bytes + needed
    return raise_utilization(wanted, worker.device_available_bytes, worker.device_total_bytes)


def cache_budget(config: Config, worker: WorkerFacts) -> int:
    """Bytes for the cache: as typed, else what the worker found to be left."""
    return worker.cache_budget_bytes if config.cache.memory_bytes is None else config.cache.memory_bytes


def _facts(config: Config, plan: CachePlan, worker: WorkerFacts) -> EngineFacts:
    tokens, concurrency = cache_tokens(plan, config.model.max_model_len, config.scheduler.max_num_batched_tokens)
    return EngineFacts(
        max_model_len=config.model.max_model_len,
        block_size=plan.block_size,
        num_blocks=plan.num_blocks,
        cache_tokens=tokens,
        max_concurrency=concurrency,
        cache_bytes=plan.total_bytes,
        weights_bytes=worker.weights_bytes,
        arena_bytes=worker.arena_bytes,
        runtime_bytes=worker.runtime_bytes,
        core_pid=os.getpid(),
        worker_pids=worker.pids,
        choices=worker.choices,
        device=config.device.device,
    )


def _log_config(config: Config) -> None:
    """What is in effect, and why each value that nobody typed is what it is."""
    logger.info(
        "Initializing octavo (v%s): model %s (%s) at %s", __version__, config.model.name, config.model.model_type, config.model.path
    )
    for part in (config.model, config.cache, config.scheduler, config.device, config.parallel):
        values = {name: getattr(part, name) for name in part.__struct_fields__ if name not in _LONG}
        logger.info("  %s: %s", type(part).__name__, ", ".join(f"{name}={value}" for name, value in values.items()))
    for reason in config.reasons:
        logger.info("  %s", reason)


def _log_memory(plan: CachePlan, worker: WorkerFacts, facts: EngineFacts, config: Config) -> None:
    logger.info("Available KV cache memory: %.2f GiB", cache_budget(config, worker) / 2**30)
    logger.info(
        "%s KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx",
        config.device.device.upper(),
        f"{facts.cache_tokens:,}",
        f"{facts.max_model_len:,}",
        facts.max_concurrency,
    )
    logger.info("Memory: runtime %s", gib(worker.runtime_bytes))
    logger.info("Memory: weights %s", gib(worker.weights_bytes))
    logger.info("Memory: arena %s", gib(worker.arena_bytes))
    per_request = blocks_for(plan, facts.max_model_len, config.scheduler.max_num_batched_tokens)
    logger.info(
        "Memory: cache %s (%d blocks of %d tokens, %d bytes each, in %d groups; one request of %d tokens holds at most %d)",
        gib(plan.total_bytes),
        plan.num_blocks,
        plan.block_size,
        plan.block_bytes,
        len(plan.groups),
        facts.max_model_len,
        per_request,
    )
    logger.info("Pass --kv-cache-memory-bytes=%d to get this cache again, whatever else uses memory", plan.total_bytes)
