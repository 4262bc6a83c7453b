"""Table: the result of a run as vLLM's bench prints it, line by line, so that scripts that read those lines read these."""

from collections.abc import Sequence

from octavo.bench.engine_side import Speculation
from octavo.bench.figures import Figures, Spread
from octavo.bench.load import Outcome
from octavo.bench.options import ServeOptions

WIDTH = 50
# metric -> what its lines call it, the line above them
TITLES = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
    "client_queue_time": ("Client Queue Time", "Client-side Queueing"),
    "e2el_including_client_queue": ("E2EL incl. Client Queue", "End-to-end Latency incl. Client Queue"),
}


def table(
    options: ServeOptions,
    figures: Figures,
    metrics: Sequence[str],
    probes: Sequence[Outcome] = (),
    speculation: Speculation | None = None,
) -> str:
    """The whole table."""
    lines = [_title(" Serving Benchmark Result ", "=")]
    lines += [_row("Successful requests:", figures.num_completed), _row("Failed requests:", figures.num_failed)]
    if options.max_concurrency is not None:
        lines.append(_row("Maximum request concurrency:", options.max_concurrency))
    if options.request_rate != float("inf"):
        lines.append(_row("Request rate configured (RPS):", float(options.request_rate)))
    lines += [
        _row("Benchmark duration (s):", figures.seconds),
        _row("Total input tokens:", figures.num_input),
        _row("Total generated tokens:", figures.num_output),
        _row("Request throughput (req/s):", figures.per_second(figures.num_completed)),
    ]
    if figures.num_good is not None:
        lines.append(_row("Request goodput (req/s):", figures.per_second(figures.num_good)))
    lines += [
        _row("Output token throughput (tok/s):", figures.per_second(figures.num_output)),
        _row("Peak output token throughput (tok/s):", figures.peak_output_per_s),
        _row("Peak concurrent requests:", float(figures.peak_concurrency)),
        _row("Total token throughput (tok/s):", figures.per_second(figures.num_input + figures.num_output)),
    ]
    lines += _probes(probes)
    for name in metrics:
        lines += _metric(name, figures.spreads[name])
    if speculation is not None:
        lines += _speculation(speculation)
    return "\n".join([*lines, "=" * WIDTH])


def _metric(name: str, spread: Spread) -> list[str]:
    short, title = TITLES[name]
    lines = [_title(title, "-"), _row(f"Mean {short} (ms):", spread.mean), _row(f"Median {short} (ms):", spread.median)]
    return lines + [_row(f"P{p} {short} (ms):", value) for p, value in spread.percentiles.items()]


def _probes(outcomes: Sequence[Outcome]) -> list[str]:
    if not outcomes:
        return []
    good = [o.latency_s for o in outcomes if o.is_success]
    lines = [
        _title("Probe Requests", "-"),
        _row("Probe requests completed:", len(good)),
        _row("Probe requests failed:", len(outcomes) - len(good)),
    ]
    if good:
        spread = Spread.of(good, [99])
        lines += [
            _row("Median probe E2EL (ms):", spread.median),
            _row("P99 probe E2EL (ms):", spread.percentiles["99"]),
            _row("Max probe E2EL (ms):", 1000 * max(good)),
        ]
    return lines


def _speculation(found: Speculation) -> list[str]:
    lines = [
        _title("Speculative Decoding", "-"),
        _row("Acceptance rate (%):", 100 * found.acceptance_rate),
        _row("Acceptance length:", found.acceptance_length),
        _row("Drafts:", found.num_drafts),
        _row("Draft tokens:", found.num_draft_tokens),
        _row("Accepted tokens:", found.num_accepted_tokens),
    ]
    if found.per_position:
        lines.append("Per-position acceptance (%):")
        lines += [_row(f"  Position {i}:", 100 * rate) for i, rate in enumerate(found.per_position)]
    return lines


def engine_table(rows: Sequence[tuple[str, int | float]]) -> str:
    """What the engine did, in the same form."""
    return "\n".join([_title("Engine", "-"), *(_row(name, value) for name, value in rows), "=" * WIDTH])


def _title(text: str, fill: str) -> str:
    return f"{text:{fill}^{WIDTH}}"


def _row(name: str, value: int | float) -> str:
    return f"{name:<40} {value:<10.2f}" if isinstance(value, float) else f"{name:<40} {value:<10}"
