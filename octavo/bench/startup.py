"""octavo bench startup: how long an engine takes to start as new processes, without compiled kernels (cold) and with them (warm)."""

import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from octavo.bench.options import StartupOptions
from octavo.bench.result_file import write_json
from octavo.checkpoint import source
from octavo.config.options import Options
from octavo.errors import ConfigError, OctavoError

PERCENTILES = (10, 25, 50, 75, 90, 99)


class StartError(OctavoError, RuntimeError):
    """The engine did not start."""


@dataclasses.dataclass(slots=True)
class Start:
    """Seconds: of the whole process until the engine can answer, and of the engine's part of it."""

    total_s: float
    engine_s: float


def startup(options: StartupOptions, engine: Options) -> int:
    """Prints both kinds of start; the exit code. The model is fetched before the first of them."""
    if options.num_iters_cold + options.num_iters_warm < 1:
        raise ConfigError("nothing is measured", "raise --num-iters-cold or --num-iters-warm")
    _settle_paths(engine)
    words = json.dumps({f.name: value for f in dataclasses.fields(engine) if (value := getattr(engine, f.name)) != _default(f)})
    cold = []
    for number in range(options.num_iters_cold):
        with tempfile.TemporaryDirectory(prefix="octavo-cold-") as empty:
            cold.append(start_once(words, {"OCTAVO_CACHE_ROOT": empty}))
        _say("cold", number, options.num_iters_cold, cold[-1])
    for number in range(options.num_iters_warmup if options.num_iters_warm else 0):
        _say("warm-up", number, options.num_iters_warmup, start_once(words, {}))
    warm = []
    for number in range(options.num_iters_warm):
        warm.append(start_once(words, {}))
        _say("warm", number, options.num_iters_warm, warm[-1])
    result = {"cold": cold, "warm": warm}
    print("\n".join(report(result)))
    if options.output_json is not None:
        write_json(options.output_json, as_json(result))
    return 0


def start_once(options: str, variables: dict[str, str]) -> Start:
    """Start an engine in a new process and end it. Raises StartError with what it said if it does not start."""
    command = [sys.executable, "-m", "octavo.bench.start_once"]
    with tempfile.TemporaryFile() as said:  # not a pipe: nobody reads it before the end
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, env=os.environ | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with process.stdin, process.stdout:
                process.stdin.write(options.encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
                total_s = time.perf_counter() - begin
            process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
        if not line.strip():
            said.seek(0)
            raise StartError(f"the engine did not start: {said.read().decode(errors='replace').strip()[-2000:]}")
    return Start(total_s, float(json.loads(line)["engine_s"]))


def report(result: dict[str, list[Start]]) -> list[str]:
    """The lines of the result."""
    lines = []
    for kind, starts in result.items():
        if starts:
            totals = [start.total_s for start in starts]
            lines += [f"{kind.capitalize()} startup:", f"  Avg total startup time: {statistics.fmean(totals):.2f} seconds"]
            lines.append(f"  Avg engine startup time: {statistics.fmean(start.engine_s for start in starts):.2f} seconds")
            lines.append("  " + ", ".join(f"{p}%: {np.percentile(totals, p):.2f} s" for p in PERCENTILES))
    if all(result.values()):
        difference = statistics.fmean(s.total_s for s in result["cold"]) - statistics.fmean(s.total_s for s in result["warm"])
        lines.append(f"Compiling kernels takes about {difference:.2f} seconds of a cold start")
    return lines


def as_json(result: dict[str, list[Start]]) -> dict[str, Any]:
    """Under the keys of vLLM's result files, where both have the same."""
    found: dict[str, Any] = {}
    for kind, starts in result.items():
        if starts:
            totals = [start.total_s for start in starts]
            found[f"avg_{kind}_startup_time"] = statistics.fmean(totals)
            found[f"{kind}_startup_times"] = totals
            found[f"{kind}_startup_percentiles"] = {str(p): float(np.percentile(totals, p)) for p in PERCENTILES}
            found[f"{kind}_engine_times"] = [start.engine_s for start in starts]
    return found


def _settle_paths(engine: Options) -> None:
    """Model and tokenizer as they lie on this machine: a cold start is without compiled kernels, not without the model."""
    engine.model, name = _local(engine, engine.model, engine.revision), engine.model
    if engine.served_model_name is None:
        engine.served_model_name = [name]
    if engine.tokenizer is not None:
        engine.tokenizer = _local(engine, engine.tokenizer, engine.tokenizer_revision)


def _local(engine: Options, name: str, revision: str | None) -> str:
    found = source.resolve(name, revision=revision, download_dir=engine.download_dir, token=engine.hf_token)
    return str(Path(found.path).resolve())


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def _say(kind: str, number: int, count: int, start: Start) -> None:
    print(f"{kind} start {number + 1} of {count}: {start.total_s:.2f} s", file=sys.stderr)
