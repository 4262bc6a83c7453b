"""octavo bench step: where the time of one step goes: planning, kernels, Python between them, sampling, handing over, delivering.

The engine core runs in this process, one step at a time, so that each part can be timed. With --profile every kernel is timed too, which
runs steps kernel by kernel.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from octavo import environment, logging, plugins
from octavo.bench.options import StepOptions
from octavo.bench.result_file import write_json
from octavo.config.config import Config
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.engine.core import EngineCore
from octavo.errors import ConfigError, OctavoError
from octavo.protocol.messages import Add, EngineOutputs, EngineRequest, ToCore
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import StepPlan, StepResult

WARM = 4  # steps before the measured ones
PARTS = ("planning", "handing over", "assembly", "forward", "sampling", "taking back", "bookkeeping", "delivery")


@dataclass
class Split:
    """Seconds of each part, step by step; kernels: of all steps together, most first."""

    parts: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})
    kernels: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0


class _Core:
    """An engine core in this process, and the requests that it runs."""

    def __init__(self, config: Config) -> None:
        self._messages: list[ToCore] = []
        self._encoder = msgspec.msgpack.Encoder()
        self.finished = 0
        self.core = EngineCore(config, plugins.load("engine.executors", "in_process").create(), self, self._deliver, lambda reply: None)
        self._random, self._count = np.random.default_rng(0), 0

    def get(self, timeout_s: float) -> ToCore | None:
        return self._messages.pop(0) if self._messages else None

    def poll(self) -> list[ToCore]:
        found, self._messages = self._messages, []
        return found

    def _deliver(self, outputs: EngineOutputs) -> None:
        self._encoder.encode(outputs)  # as a front end in another process gets them
        self.finished += sum(1 for output in outputs.outputs if output.finish_reason is not None)

    def add(self, prompt: int, output: int) -> None:
        self._count += 1
        tokens = self._random.integers(3, self.core.config.model.vocab_size, prompt, dtype=np.int32)
        sampling = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=output, detokenize=False)
        self._messages.append(Add(EngineRequest(str(self._count), tokens.tobytes(), sampling, time.monotonic())))

    def step(self, split: Split | None = None) -> StepPlan:
        """One turn of the core's loop, timed into `split`."""
        core = self.core
        core.handle_inputs()
        began = time.monotonic()
        plan = core.plan()
        planned = time.monotonic()
        if plan is None:
            raise OctavoError("the engine has nothing to compute", "lower --batch or --context, or give the cache more memory")
        core.submit(plan)
        result = core.collect()
        collected = time.monotonic()
        core.update(result)
        updated = time.monotonic()
        core.deliver()
        if split is not None:
            _note(split, result, (began, planned, collected, updated, time.monotonic()))
        return plan


def step(options: StepOptions, models: list[str], engine: Options) -> int:
    """Prints the split; the exit code."""
    if len(models) != 1:
        raise ConfigError("octavo bench step takes one MODEL")
    if min(options.batch, options.context, options.num_iters) < 1:
        raise ConfigError("--batch, --context and --num-iters must be at least 1")
    logging.configure(environment.logging_level(), "bench")
    engine = _settings(options, models[0], engine)
    config = resolve(engine, "llm")
    runner = _Core(config)
    try:
        facts = runner.core.start()
        split = _measure(runner, options)
        read_gb_s = float(runner.core.executor.call("read_gb_s"))
    finally:
        runner.core.shutdown()
    print("\n".join(report(split, options, read_gb_s)))
    if options.output_json is not None:
        told = {"options": dataclasses.asdict(options), "model": models[0], "weights_bytes": facts.weights_bytes, "read_gb_s": read_gb_s}
        write_json(options.output_json, told | {"parts": split.parts, "kernels": split.kernels, "steps": split.steps})
    return 0


def report(split: Split, options: StepOptions, read_gb_s: float) -> Iterator[str]:
    """The lines of the result."""
    medians = {part: statistics.median(seconds) for part, seconds in split.parts.items()}
    whole = statistics.median(map(sum, zip(*split.parts.values(), strict=True)))
    what = f"prompts of {options.context} tokens" if options.prefill else f"{options.batch} rows at {options.context} tokens"
    yield f"one step, {what}: {1e3 * whole:.3f} ms, median of {split.steps}; reading here: {read_gb_s:.1f} GB/s"
    yield ""
    yield f"{'part':<44}{'ms a step':>10}{'share':>8}{'calls':>7}{'GB/s':>8}{'of reading':>12}"
    kernels = sum(entry["seconds"] for entry in split.kernels) / max(1, split.steps)
    inside = medians["forward"] + medians["sampling"]
    for part, seconds in medians.items():
        yield f"{part:<44}{1e3 * seconds:>10.3f}{seconds / whole:>8.1%}"
    if not split.kernels:
        return
    yield ""
    yield f"{'kernels, of forward and sampling':<44}{1e3 * kernels:>10.3f}{kernels / whole:>8.1%}"
    yield f"{'Python between them':<44}{1e3 * (inside - kernels):>10.3f}{(inside - kernels) / whole:>8.1%}"
    for entry in split.kernels:
        seconds, calls = entry["seconds"] / split.steps, entry["calls"] / split.steps
        rate = entry["weights_bytes"] / entry["seconds"] / 1e9 if entry["seconds"] else 0.0
        tail = f"{rate:>8.1f}{rate / read_gb_s:>12.0%}" if entry["weights_bytes"] else ""
        what = f"{entry['kernel']}, {entry['units']} units"
        yield f"  {what:<42}{1e3 * seconds:>10.3f}{seconds / whole:>8.1%}{calls:>7.0f}{tail}"


def _settings(options: StepOptions, model: str, engine: Options) -> Options:
    changed: dict[str, Any] = {"model": model, "enable_prefix_caching": False}
    if engine.max_num_seqs is None:
        changed["max_num_seqs"] = max(8, options.batch)
    if engine.kv_cache_memory_bytes is None:
        changed["kv_cache_memory_bytes"] = 1 << 30
    if options.prefill and engine.max_num_batched_tokens is None:
        changed["max_num_batched_tokens"] = options.context
    if options.profile:
        changed["enforce_eager"] = True  # a tape's kernels cannot be told apart
    return dataclasses.replace(engine, **changed)


def _measure(runner: _Core, options: StepOptions) -> Split:
    advance = _prompts(runner, options) if options.prefill else _decoding(runner, options)
    for _ in range(WARM):
        advance(None)
    split, executor = Split(), runner.core.executor
    if options.profile:
        executor.call("begin_profile")
    for _ in range(options.num_iters):
        advance(split)
    if options.profile:
        split.kernels = executor.call("end_profile")
    return split


def _decoding(runner: _Core, options: StepOptions) -> Callable[[Split | None], None]:
    """Each step generates a token for every request, whose prompts have been computed."""
    for _ in range(options.batch):
        runner.add(options.context, WARM + options.num_iters + 2 + options.batch * options.context)
    room = runner.core.config.model.max_model_len
    for _ in range(options.batch * (2 + options.context // 64)):
        if len(runner.step().counts) == 4 * options.batch and _generates(runner.step(), options.batch):
            return lambda split: _checked(runner.step(split), options.batch)
    raise OctavoError(
        f"{options.batch} requests of {options.context} tokens do not run side by side",
        f"the model holds {room} tokens; see --kv-cache-memory-bytes",
    )


def _prompts(runner: _Core, options: StepOptions) -> Callable[[Split | None], None]:
    """Each step computes the prompts of `batch` new requests."""

    def advance(split: Split | None) -> None:
        for _ in range(options.batch):
            runner.add(options.context, 1)
        finished = runner.finished
        while runner.finished < finished + options.batch:
            runner.step(split)

    return advance


def _generates(plan: StepPlan, batch: int) -> bool:
    counts = np.frombuffer(plan.counts, np.int32)
    return len(counts) == batch and bool((counts == 1).all())


def _checked(plan: StepPlan, batch: int) -> None:
    if not _generates(plan, batch):
        raise OctavoError("a step did not generate for every request", "give the cache more memory: --kv-cache-memory-bytes")


def _note(split: Split, result: StepResult, times: tuple[float, float, float, float, float]) -> None:
    began, planned, collected, updated, delivered = times
    timings = result.timings
    if result.failure or timings is None:
        raise OctavoError(f"the step failed: {result.failure}")
    seconds = {
        "planning": planned - began,
        "handing over": timings.started - planned,
        "assembly": timings.ended - timings.started - timings.forward_s - timings.sample_s,
        "forward": timings.forward_s,
        "sampling": timings.sample_s,
        "taking back": collected - timings.ended,
        "bookkeeping": updated - collected,
        "delivery": delivered - updated,
    }
    for part, value in seconds.items():
        split.parts[part].append(value)
    split.steps += 1
