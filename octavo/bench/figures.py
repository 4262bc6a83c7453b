"""Figures: what the outcomes of a run amount to, under the names that vLLM's result files use."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.bench.load import Outcome, Run
from octavo.errors import ConfigError

MS = 1000.0
# metric -> seconds of one outcome, or of each of its tokens
METRICS = ("ttft", "tpot", "itl", "e2el", "client_queue_time", "e2el_including_client_queue")
GOOD = ("ttft", "tpot", "e2el")


@dataclass(slots=True)
class Spread:
    """Milliseconds over all requests (or, for itl, over all gaps between chunks)."""

    mean: float
    median: float
    deviation: float
    percentiles: dict[str, float]

    @classmethod
    def of(cls, seconds: Sequence[float], percentiles: Sequence[float]) -> "Spread":
        values = np.asarray(seconds if len(seconds) else [0.0]) * MS
        each = {_name(p): float(np.percentile(values, p)) for p in percentiles}
        return cls(float(values.mean()), float(np.median(values)), float(values.std()), each)


@dataclass(slots=True)
class Figures:
    """Counts are of the requests that succeeded, but for num_failed."""

    seconds: float
    num_completed: int
    num_failed: int
    num_input: int
    num_output: int
    num_good: int | None
    peak_output_per_s: float
    peak_concurrency: int
    spreads: dict[str, Spread] = field(default_factory=dict)

    def per_second(self, count: float) -> float:
        return count / self.seconds if self.seconds > 0 else 0.0


def figures(run: Run, percentiles: Sequence[float], goals: dict[str, float] | None = None) -> Figures:
    """goals: metric -> the milliseconds that a good request keeps."""
    good = [o for o in run.outcomes if o.is_success]
    seconds: dict[str, list[float]] = {
        "ttft": [o.ttft_s for o in good],
        "tpot": [t for o in good if (t := per_token_s(o)) is not None],
        "itl": [gap for o in good for gap in o.itl_s],
        "e2el": [o.latency_s for o in good],
        "client_queue_time": [o.queue_s for o in good],
        "e2el_including_client_queue": [o.latency_s + o.queue_s for o in good],
    }
    return Figures(
        seconds=run.seconds,
        num_completed=len(good),
        num_failed=len(run.outcomes) - len(good),
        num_input=sum(o.num_prompt for o in good),
        num_output=sum(o.num_output or 0 for o in good),
        num_good=None if not goals else sum(is_good(o, goals) for o in good),
        peak_output_per_s=max(output_by_second(run), default=0.0),
        peak_concurrency=most_at_once([(o.start_s, o.end_s) for o in good]),
        spreads={name: Spread.of(values, percentiles) for name, values in seconds.items()},
    )


def per_token_s(outcome: Outcome) -> float | None:
    """Seconds between two tokens after the first, over the whole answer; None with fewer than two."""
    count = outcome.num_output or 0
    return (outcome.latency_s - outcome.ttft_s) / (count - 1) if count > 1 else None


def is_good(outcome: Outcome, goals: dict[str, float]) -> bool:
    """Whether a request keeps every goal. An answer of one token keeps any goal for the time between tokens."""
    measured = {"ttft": outcome.ttft_s, "tpot": per_token_s(outcome) or 0.0, "e2el": outcome.latency_s}
    return all(measured[name] * MS <= limit for name, limit in goals.items())


def output_by_second(run: Run) -> list[float]:
    """Output tokens of each second of the run. Tokens that share a chunk came when it did."""
    counts = [0.0] * math.ceil(max((o.end_s - run.start_s for o in run.outcomes if o.is_success), default=0.0) + 1e-9)
    for outcome in run.outcomes:
        if outcome.is_success and outcome.num_output:
            each = outcome.num_output / (len(outcome.itl_s) + 1)
            at = outcome.start_s + outcome.ttft_s - run.start_s
            for gap in (0.0, *outcome.itl_s):
                at += gap
                counts[min(int(at), len(counts) - 1)] += each
    return counts


def most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    """The largest number of spans that hold one moment."""
    events = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, step in events:
        now += step
        most = max(most, now)
    return most


def parse_percentiles(text: str) -> list[float]:
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = [-1.0]
    if not all(0 <= p <= 100 for p in found):
        raise ConfigError(f"--metric-percentiles {text!r} is no list of percentiles", "for example 50,90,99")
    return found


def parse_metrics(text: str) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := [word for word in found if word not in METRICS]:
        raise ConfigError(f"--percentile-metrics: unknown metric {unknown[0]!r}", f"there are {', '.join(METRICS)}")
    return found


def parse_goals(words: Sequence[str]) -> dict[str, float]:
    """ttft:200 tpot:50 -> {"ttft": 200.0, "tpot": 50.0}."""
    found: dict[str, float] = {}
    for word in words:
        name, _, value = word.partition(":")
        try:
            limit = float(value)
        except ValueError:
            limit = -1.0
        if name not in GOOD or not limit >= 0:
            raise ConfigError(f"--goodput {word!r} is no goal", f"METRIC:MILLISECONDS, of {', '.join(GOOD)}")
        found[name] = limit
    return found


def _name(percentile: float) -> str:
    """99 -> "99", 99.9 -> "99.9"."""
    return f"{percentile:g}"


Count = Callable[[str], int]


def count_unknown_outputs(run: Run, count: Count | None) -> None:
    """Where the server did not say how many tokens came: the tokens of the text, else the chunks."""
    for outcome in run.outcomes:
        if outcome.num_output is None and outcome.is_success:
            outcome.num_output = count(outcome.text) if count is not None else len(outcome.itl_s) + 1


def result(figures: Figures, metrics: Sequence[str]) -> dict[str, Any]:
    """The figures under the keys of vLLM's result files, the chosen metrics with their percentiles."""
    good = figures.num_good
    found: dict[str, Any] = {
        "duration": figures.seconds,
        "completed": figures.num_completed,
        "failed": figures.num_failed,
        "total_input_tokens": figures.num_input,
        "total_output_tokens": figures.num_output,
        "request_throughput": figures.per_second(figures.num_completed),
        "request_goodput": None if good is None else figures.per_second(good),
        "output_throughput": figures.per_second(figures.num_output),
        "total_token_throughput": figures.per_second(figures.num_input + figures.num_output),
        "max_output_tokens_per_s": figures.peak_output_per_s,
        "max_concurrent_requests": figures.peak_concurrency,
    }
    for name in metrics:
        spread = figures.spreads[name]
        found |= {f"mean_{name}_ms": spread.mean, f"median_{name}_ms": spread.median, f"std_{name}_ms": spread.deviation}
        found |= {f"p{p}_{name}_ms": value for p, value in spread.percentiles.items()}
    return found


def probe_result(probes: Sequence[Outcome]) -> dict[str, Any]:
    """The probes' figures, under the keys of vLLM's result files."""
    good = [o.latency_s for o in probes if o.is_success]
    found: dict[str, Any] = {"probe_completed": len(good), "probe_failed": len(probes) - len(good)}
    if good:
        spread = Spread.of(good, [99])
        found |= {
            "probe_median_e2el_ms": spread.median,
            "probe_p99_e2el_ms": spread.percentiles["99"],
            "probe_max_e2el_ms": max(good) * MS,
        }
    return found
