"""The report: medians of lanes, ratios of octavo to each peer within turns, and shares of the roofs of the same turns."""

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import workload
from benchmarks.formats import Sizes
from benchmarks.measures import MEASURES, Lane, Measure
from benchmarks.record import Record, Row

PUBLISHED = "speed.json"
INT8_PRODUCTS = ("w8a8", "int8")  # formats whose products are held against the int8 roof
PERCENTILES = {"p50": 50, "p99": 99}

Summary = dict[str, Any]


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def summarize(record: Record) -> Summary:
    """Everything that tables and plots show, as JSON has it."""
    versions: dict[str, Any] = {}
    for run in record.runs:
        versions |= {lane: facts.get("version") for lane, facts in run["versions"].items() if facts.get("version")}
    models = {name: _model(record, name, Sizes(**sizes)) for name, sizes in record.models.items()}
    runs = [{key: run[key] for key in ("date", "commit", "is_changed", "threads")} for run in record.runs]
    failures = [{key: one[key] for key in ("model", "measure", "engine", "format", "why")} for one in record.failures]
    machine = record.runs[-1]["machine"] if record.runs else {}
    return {"machine": machine, "runs": runs, "versions": versions, "models": models, "failures": failures}


def publish(summary: Summary, folder: Path) -> None:
    """The file that documentation is made of. What failed is told without this machine's folders."""
    folder.mkdir(parents=True, exist_ok=True)
    told = summary | {"failures": [{key: one[key] for key in ("model", "measure", "engine", "format")} for one in summary["failures"]]}
    (folder / PUBLISHED).write_text(json.dumps(told, indent=1) + "\n")


def text(summary: Summary) -> str:
    """Tables, as Markdown has them."""
    lines = [_machine_line(summary)]
    for name, model in summary["models"].items():
        lines += ["", f"## {name}"]
        for measure, asks in model.items():
            lines += ["", *table(measure, asks)]
    for one in summary["failures"]:
        lines.append(f"left out: {one['measure']} of {one['engine']} {one['format']}: {one.get('why', '')[:200]}")
    return "\n".join(lines)


def table(measure: str, asks: dict[str, Any]) -> list[str]:
    """One measure's lanes, each beside the octavo's lane that it is compared with."""
    if measure == "planning":
        return [f"planning: {json.dumps(asks)}"]
    if measure == "serve":
        return list(_server_table(asks))
    return list(_plain_table(measure, asks))


# --- one model


def _model(record: Record, name: str, sizes: Sizes) -> Summary:
    found: Summary = {}
    for measure in (*MEASURES, "planning"):
        rows = [row for row in record.rows if (row["model"], row["measure"]) == (name, measure)]
        if rows and measure == "planning":
            found[measure] = rows[-1]["value"]
        elif rows:
            found[measure] = {ask: _ask(record, MEASURES[measure], ask, rows, sizes) for ask in _asks(rows)}
    return found


def _asks(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["ask"] for row in rows if row["engine"] != "roofs"))


def _ask(record: Record, measure: Measure, ask: str, rows: Sequence[Row], sizes: Sizes) -> Summary:
    lanes: dict[Lane, dict[int, Any]] = {}  # lane -> turn -> value
    roofs: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["engine"] == "roofs":
            roofs.setdefault(row["turn"], {})[row["ask"]] = row["value"]["g_s"]
        elif row["ask"] == ask:
            lanes.setdefault(Lane(row["engine"], row["format"]), {})[row["turn"]] = row["value"]
    found: Summary = {"lanes": {}, "pairs": []}
    for lane, turns in lanes.items():
        figures = _pooled(turns) if measure.kind == "server" else _spread([value[measure.unit] for value in turns.values()])
        share = _share(ask, lane, turns, roofs, sizes, record.facts(lane).get("weights_bytes"), measure)
        found["lanes"][str(lane)] = figures | ({} if share is None else {"share": share})
    for own, others in measure.pairs.items():
        for other in others:
            if own in lanes and other in lanes:
                found["pairs"].append({"own": str(own), "other": str(other)} | _ratios(measure, lanes[own], lanes[other]))
    used = sorted({name for turn in roofs.values() for name in turn})
    found["roofs"] = {name: _spread([turn[name] for turn in roofs.values() if name in turn]) for name in used}
    return found


def _spread(values: Sequence[float]) -> Summary:
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "count": len(values)}


def _ratios(measure: Measure, own: dict[int, Any], other: dict[int, Any]) -> Summary:
    """octavo over the other, or the other over octavo where less is better: above 1 octavo is ahead. Of turns that both are in."""
    turns = sorted(own.keys() & other.keys())
    if not turns:
        return {"ratios": {}}
    if measure.kind == "server":
        mine, theirs = _pooled({turn: own[turn] for turn in turns}), _pooled({turn: other[turn] for turn in turns})
        each = [(_pooled({turn: own[turn]}), _pooled({turn: other[turn]})) for turn in turns]
        ratios = {}
        for key in mine.keys() - {"count"}:
            found = [_ratio(key == "tokens_s", a[key], b[key]) for a, b in each]
            ratios[key] = _spread(found) | {"median": _ratio(key == "tokens_s", mine[key], theirs[key])}
        return {"ratios": ratios}
    unit = measure.unit
    return {"ratios": {unit: _spread([_ratio(unit == "tokens_s", own[turn][unit], other[turn][unit]) for turn in turns])}}


def _ratio(is_more_better: bool, own: float, other: float) -> float:
    return own / other if is_more_better else other / own


def _pooled(turns: dict[int, Any]) -> Summary:
    """Percentiles over the requests, and the gaps between tokens, of all turns together."""
    found: Summary = {"tokens_s": statistics.median(value["tokens_s"] for value in turns.values()), "count": len(turns)}
    for key in ("ttft_ms", "itl_ms"):
        values = sorted(one for value in turns.values() for one in value[key])
        for name, percent in PERCENTILES.items():
            found[f"{key.removesuffix('_ms')}_{name}_ms"] = percentile(values, percent)
    return found


def percentile(values: Sequence[float], percent: float) -> float:
    """Of sorted values, the smallest that at least so many are not above."""
    return values[max(0, math.ceil(percent / 100 * len(values)) - 1)] if values else math.nan


# --- shares of the roofs


def _share(
    ask: str, lane: Lane, turns: dict[int, Any], roofs: dict[int, dict[str, float]], sizes: Sizes, weights: int | None, measure: Measure
) -> float | None:
    """The median over turns of the least time that the roofs of the turn allow over the time taken; None where it cannot be told."""
    shares = []
    for turn, value in turns.items():
        least = least_s(ask, lane.format, roofs.get(turn, {}), sizes, weights)
        if least is None:
            return None
        taken = value["seconds_token"] if measure.unit == "seconds_token" else _tokens(ask) / value["tokens_s"]
        shares.append(least / taken)
    return statistics.median(shares)


def _tokens(ask: str) -> int:
    kind, _, size = ask.partition("-")
    if kind == "offline":
        return sum(output for _, output in workload.Tokens().offline(int(size or workload.OFFLINE_REQUESTS)))
    return int(size) if kind == "prefill" else 1


def least_s(ask: str, number_format: str, roofs: dict[str, float], sizes: Sizes, weights: int | None) -> float | None:
    """Seconds that an ask takes at the roofs: weights and cache read at the reading roof, products at that of their kind.

    A token for decode and context, the prompt for prefill, all requests for offline (weights read once a step, as many steps as the longest
    output has tokens). Attention's products are in bfloat16 whatever the weights are.
    """
    kind, _, size = ask.partition("-")
    products = roofs.get("int8" if number_format in INT8_PRODUCTS else "fp32" if number_format == "fp32" else "bf16")
    if kind in ("decode", "context"):
        if "read" not in roofs or weights is None:
            return None
        held = int(size or 96)  # decode: 32 tokens of a prompt, and half of those that follow
        return (sizes.read_bytes(weights) + held * sizes.state_bytes) / (1e9 * roofs["read"])
    if products is None or "bf16" not in roofs:
        return None
    if kind == "prefill":
        length = int(size)
        return 2 * sizes.linear * length / (1e9 * products) + (sizes.attention_flop(length) + 2 * sizes.head) / (1e9 * roofs["bf16"])
    if kind != "offline" or weights is None:
        return None
    requests = [(len(prompt), output) for prompt, output in workload.Tokens().offline(int(size or workload.OFFLINE_REQUESTS))]
    computed, output = sum(p + o - 1 for p, o in requests), sum(o for _, o in requests)
    attention = sum(sizes.attention_flop(p + o) for p, o in requests)
    reading = max(o for _, o in requests) * sizes.read_bytes(weights) / (1e9 * roofs["read"])
    return reading + 2 * sizes.linear * computed / (1e9 * products) + (attention + 2 * sizes.head * output) / (1e9 * roofs["bf16"])


# --- tables


def _plain_table(measure: str, asks: dict[str, Any]) -> Iterator[str]:
    one = MEASURES[measure]
    title = {"tokens_s": "tokens/s", "seconds": "seconds", "seconds_token": "ms a token"}[one.unit]
    scale = 1e3 if one.unit == "seconds_token" else 1.0
    yield f"| {one.title} | {title} (range) | turns | share of the roof | octavo's ratio (range) |"
    yield "|---|---|---|---|---|"
    for ask, found in asks.items():
        label = ask.partition("-")[2]
        for lane, figures in found["lanes"].items():
            ratios = [_ratio_text(pair, one.unit) for pair in found["pairs"] if pair["other"] == lane]
            share = f"{100 * figures['share']:.0f} %" if "share" in figures else ""
            spread = f"{scale * figures['median']:.4g} ({scale * figures['low']:.4g}-{scale * figures['high']:.4g})"
            yield f"| {f'{label}: ' if label else ''}{lane} | {spread} | {figures['count']} | {share} | {', '.join(ratios)} |"
        if found["roofs"]:
            told = ", ".join(f"{name} {roof['median']:.4g} ({roof['low']:.4g}-{roof['high']:.4g})" for name, roof in found["roofs"].items())
            yield f"| roofs, G/s: {told} | | | | |"


def _ratio_text(pair: Summary, key: str) -> str:
    ratio = pair["ratios"].get(key)
    if ratio is None:
        return ""
    own = pair["own"].removeprefix("octavo ")
    return f"{own}: {ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"


def _server_table(asks: dict[str, Any]) -> Iterator[str]:
    yield "| clients, server | output tokens/s | TTFT p50 / p99 ms | inter-token p50 / p99 ms | octavo's ratios |"
    yield "|---|---|---|---|---|"
    for ask, found in asks.items():
        for lane, f in found["lanes"].items():
            ratios = []
            for pair in found["pairs"]:
                if pair["other"] == lane and pair["ratios"]:
                    r = {key: f"{value['median']:.2f}" for key, value in pair["ratios"].items()}
                    ratios.append(f"{r['tokens_s']}; {r['ttft_p50_ms']} / {r['ttft_p99_ms']}; {r['itl_p50_ms']} / {r['itl_p99_ms']}")
            times = f"{f['ttft_p50_ms']:.0f} / {f['ttft_p99_ms']:.0f} | {f['itl_p50_ms']:.1f} / {f['itl_p99_ms']:.1f}"
            yield f"| {ask.partition('-')[2]}: {lane} | {f['tokens_s']:.1f} | {times} | {', '.join(ratios)} |"


def _machine_line(summary: Summary) -> str:
    machine, runs = summary["machine"], summary["runs"]
    if not runs:
        return "nothing was measured"
    dates = sorted({run["date"] for run in runs})
    cpu = f"{machine['processor']}, {machine['cores']} cores ({', '.join(machine['flags'])}), {machine['memory_gib']} GiB"
    commits = ", ".join(dict.fromkeys(f"{run['commit']}{' with changes' if run['is_changed'] else ''}" for run in runs))
    return f"{cpu}; {dates[0]}{f' to {dates[-1]}' if len(dates) > 1 else ''}; commit {commits}; {runs[-1]['threads']} threads"
