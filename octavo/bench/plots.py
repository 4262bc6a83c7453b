"""Plots: a run as pictures, PNG files beside the result. Needs the extra `bench` (matplotlib)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.bench.figures import output_by_second
from octavo.bench.load import Outcome, Run
from octavo.errors import ConfigError

COLOURS = ("#2a9d57", "#e0a100", "#c73a2e")  # below the first threshold, between, above the second
WAITING = "#9aa5b1"  # until the first token


def check() -> None:
    """Raise ConfigError if there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("--plot-timeline and --plot-dataset-stats need matplotlib", "pip install 'octavo[bench]'") from None


def timeline(file: Path, run: Run, thresholds_ms: tuple[float, float]) -> None:
    """Above: a bar for each request, coloured by the time between its tokens. Below: output tokens a second, latencies as shares."""
    picture = figure(12, 10)
    grid = picture.add_gridspec(2, 2, height_ratios=(3, 2))
    _requests(picture.add_subplot(grid[0, :]), run, thresholds_ms)
    _throughput(picture.add_subplot(grid[1, 0]), run)
    _latencies(picture.add_subplot(grid[1, 1]), [o for o in run.outcomes if o.is_success])
    save(picture, file)


def dataset(file: Path, prompts: Sequence[int], outputs: Sequence[int]) -> None:
    """How many tokens the prompts, the outputs and both together have."""
    picture = figure(12, 4)
    together = [a + b for a, b in zip(prompts, outputs, strict=True)]
    for place, (title, counts) in enumerate((("prompts", prompts), ("outputs", outputs), ("together", together)), 1):
        axes = picture.add_subplot(1, 3, place)
        axes.hist(counts, bins=min(40, max(1, len(set(counts)))), color=COLOURS[0])
        axes.set(title=title, xlabel="tokens", ylabel="requests" if place == 1 else "")
    save(picture, file)


def parse_thresholds(text: str) -> tuple[float, float]:
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0 <= low <= high:
        raise ConfigError(f"--timeline-itl-thresholds {text!r} is no pair of milliseconds", "for example 25,50")
    return low, high


def _requests(axes: Any, run: Run, thresholds_ms: tuple[float, float]) -> None:
    for row, outcome in enumerate(run.outcomes):
        start = outcome.start_s - run.start_s
        if not outcome.is_success:
            axes.broken_barh([(start, max(outcome.latency_s, 1e-3))], (row - 0.4, 0.8), facecolors="none", edgecolors=COLOURS[2])
            continue
        axes.broken_barh([(start, outcome.ttft_s)], (row - 0.4, 0.8), facecolors=WAITING)
        ends = start + outcome.ttft_s + np.cumsum([0.0, *outcome.itl_s])
        kinds = [COLOURS[int(np.searchsorted(thresholds_ms, gap * 1000, side="right"))] for gap in outcome.itl_s]
        axes.broken_barh(list(zip(ends[:-1], outcome.itl_s, strict=True)), (row - 0.4, 0.8), facecolors=kinds)
    low, high = thresholds_ms
    names = ("first token", f"< {low:g} ms", f"{low:g}-{high:g} ms", f"> {high:g} ms")
    for colour, name in zip((WAITING, *COLOURS), names, strict=True):
        axes.plot([], [], color=colour, linewidth=6, label=name)
    axes.legend(loc="lower right", fontsize="small")
    axes.set(title="requests", xlabel="seconds", ylabel="request")
    axes.invert_yaxis()


def _throughput(axes: Any, run: Run) -> None:
    counts = output_by_second(run)
    axes.step(range(len(counts) + 1), [*counts, counts[-1] if counts else 0], where="post", color=COLOURS[0])
    axes.set(title="output", xlabel="seconds", ylabel="tokens/s", ylim=(0, None))


def _latencies(axes: Any, outcomes: Sequence[Outcome]) -> None:
    series = {
        "TTFT": [o.ttft_s for o in outcomes],
        "ITL": [gap for o in outcomes for gap in o.itl_s],
        "E2EL": [o.latency_s for o in outcomes],
    }
    for name, values in series.items():
        if values:
            ordered = np.maximum(np.sort(values) * 1000, 1e-3)
            axes.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered), drawstyle="steps-post", label=name)
    axes.set(title="latencies", xlabel="milliseconds", ylabel="share of at most", xscale="log", ylim=(0, 1))
    if outcomes:
        axes.legend(loc="lower right", fontsize="small")


def figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(picture: Any, file: Path, kind: str = "png") -> None:
    """kind: png or svg; the same figure gives the same bytes."""
    import matplotlib

    try:
        with matplotlib.rc_context({"svg.hashsalt": "octavo"}):
            picture.savefig(file, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
