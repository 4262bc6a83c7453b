"""Plots of a summary, as SVG: throughput and inter-token latency over clients, share of the roofs, growth with the context."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from octavo.bench.plots import figure, save

COLOURS = {"octavo": "#2a9d57", "vllm": "#c73a2e", "llama.cpp": "#7a5cc7", "openvino": "#e0a100", "transformers": "#9aa5b1"}
STYLES = {"bf16": "-", "BF16": "-", "Q4_0": "--", "Q8_0": ":", "w8a8": "-."}


def draw(summary: dict[str, Any], folder: Path) -> list[Path]:
    """A file for each plot and model that the summary has figures for."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for model, measures in summary["models"].items():
        for name, (measure, plot) in PLOTS.items():
            if measures.get(measure):
                picture = figure(6.4, 3.6)
                plot(picture.add_subplot(), measures)
                files.append(folder / f"{model.lower()}-{name}.svg")
                save(picture, files[-1], "svg")
    return files


def _lines(axes: Any, asks: dict[str, Any], value: Callable[[dict[str, Any]], float]) -> None:
    """A line for each lane over the number at the end of an ask's name."""
    lanes = list(dict.fromkeys(lane for found in asks.values() for lane in found["lanes"]))
    for lane in lanes:
        engine, _, number_format = lane.partition(" ")
        points = [(int(ask.partition("-")[2]), value(found["lanes"][lane])) for ask, found in asks.items() if lane in found["lanes"]]
        xs, ys = zip(*sorted(points))
        axes.plot(xs, ys, STYLES.get(number_format, "-"), color=COLOURS.get(engine), marker="o", markersize=3, label=lane)
    axes.legend(fontsize="small")
    axes.grid(alpha=0.25)


def _throughput(axes: Any, measures: dict[str, Any]) -> None:
    _lines(axes, measures["serve"], lambda figures: figures["tokens_s"])
    axes.set(xlabel="clients", ylabel="output tokens/s", xscale="log", ylim=(0, None))
    _plain_ticks(axes, measures["serve"])


def _latency(axes: Any, measures: dict[str, Any]) -> None:
    _lines(axes, measures["serve"], lambda figures: figures["itl_p50_ms"])
    axes.set(xlabel="clients", ylabel="ms between tokens, median", xscale="log", ylim=(0, None))
    _plain_ticks(axes, measures["serve"])


def _growth(axes: Any, measures: dict[str, Any]) -> None:
    _lines(axes, measures["context"], lambda figures: 1e3 * figures["median"])
    axes.set(xlabel="tokens of context", ylabel="ms a token", ylim=(0, None))


def _shares(axes: Any, measures: dict[str, Any]) -> None:
    bars = list(_bars(measures))
    for place, (_, lane, share) in enumerate(bars):
        axes.barh(place, 100 * share, color=COLOURS.get(lane.partition(" ")[0]))
    axes.set_yticks(range(len(bars)), [f"{ask}, {lane}" for ask, lane, _ in bars], fontsize="x-small")
    axes.invert_yaxis()
    axes.set(xlabel="share of what the machine can do in the same minute, %", xlim=(0, 100))
    axes.grid(axis="x", alpha=0.25)


def _bars(measures: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    for measure in ("decode", "prefill", "offline"):
        for ask, found in measures.get(measure, {}).items():
            for lane, figures in found["lanes"].items():
                if "share" in figures:
                    yield ask.replace("-", " "), lane, figures["share"]


def _plain_ticks(axes: Any, asks: dict[str, Any]) -> None:
    clients = [int(ask.partition("-")[2]) for ask in asks]
    axes.set_xticks(clients, [str(number) for number in clients])
    axes.minorticks_off()


PLOTS: dict[str, tuple[str, Callable[[Any, dict[str, Any]], None]]] = {
    "throughput": ("serve", _throughput),
    "latency": ("serve", _latency),
    "context": ("context", _growth),
    "roofs": ("decode", _shares),
}
