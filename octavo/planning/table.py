"""A plan as a page of text: the answer first, then where the memory goes, then what the layout asks for."""

from octavo.planning.advice import Remedy
from octavo.planning.plan import Plan
from octavo.planning.report import batches
from octavo.planning.speed import Roofline, serve
from octavo.planning.workload import Workload

_WIDTH = 26


def of(plan: Plan, remedies: list[Remedy], roofline: Roofline, workload: Workload) -> str:
    """The page."""
    config, room, topology = plan.config, plan.tightest, plan.topology
    quantization = config.model.quantization or config.model.dtype
    lines = [f"{plan.model} ({count(plan.parameters)} parameters, {quantization}, cache in {config.cache.dtype}) on {plan.hardware.name}"]
    if plan.fits:
        users = f"{plan.max_concurrency:,.1f} requests of {config.model.max_model_len:,} tokens at a time"
        lines.append(f"It fits: {plan.cache_tokens:,} tokens of cache, {users}.")
    else:
        lines += [f"It does not fit: {reason}." for reason in plan.reasons]
    lines += ["", "One device" + (f" (the tightest of {topology.ranks})" if topology.ranks > 1 else "")]
    rank = plan.ranks[plan.rooms.index(room)]
    lines.append(row("memory", gib(room.total_bytes), f"x {config.cache.memory_utilization:g} = {gib(room.budget_bytes)} may be used"))
    lines.append(row("weights", gib(room.weights_bytes), f"layers {rank.layers[0]}..{rank.layers[1] - 1}"))
    lines += [row(f"  {part}", gib(size)) for part, size in sorted(rank.parts.items(), key=lambda item: -item[1]) if size >= 2**20]
    scheduler = config.scheduler
    lines.append(
        row("scratch of a step", gib(room.arena_bytes), f"{scheduler.max_num_batched_tokens} tokens, {scheduler.max_num_seqs} rows")
    )
    lines.append(row("runtime", gib(room.runtime_bytes), "assumed" if plan.hardware.card.kind == "gpu" else "of this process"))
    if room.graph_bytes:
        lines.append(row("graphs", gib(room.graph_bytes), "assumed"))
    lines.append(row("cache", gib(room.cache_bytes), f"{room.num_blocks:,} blocks of {config.cache.block_size} tokens"))
    heads = f"{rank.heads} heads, {rank.kv_heads} kv heads" + (f", {rank.experts} experts a layer" if rank.experts else "")
    lines.append(row("holds", heads))
    lines += ["", "The whole"]
    lines.append(row("cache per token", f"{plan.bytes_per_token:,} bytes", f"{plan.bytes_per_token / 1024:.1f} KiB"))
    if plan.bytes_per_sequence:
        lines.append(row("state per sequence", f"{plan.bytes_per_sequence:,} bytes", "windows, when they are full"))
    lines.append(row("longest request", f"{room.longest:,} tokens", "alone in the cache"))
    layout = ", ".join(f"{name} {size}" for name, size in _sizes(plan) if size > 1) or "one device"
    lines.append(row("layout", layout, f"{topology.ranks} devices, {plan.hardware.num_nodes} machine{'s' * (plan.hardware.num_nodes > 1)}"))
    lines.append(row("processes", str(topology.processes), f"at least {topology.least_cores} physical cores"))
    if plan.fits:
        lines += ["", *_speed(roofline, workload)]
    if remedies:
        lines += ["", "What would fit, the cheapest first"]
        lines += [f"  {number}. {remedy.change}: {remedy.result}" for number, remedy in enumerate(remedies, 1)]
    assumed = [] if plan.hardware.card.kind == "cpu" else [f"figures of the card: {plan.hardware.card.source}"]
    notes = [*plan.notes, *assumed, f"speed: {roofline.efficiency.source}", *plan.config.reasons]
    lines += ["", "Assumed", *(f"  - {note}" for note in notes)]
    return "\n".join(lines)


def _speed(roofline: Roofline, workload: Workload) -> list[str]:
    """Steps of decoding, and what clients of the workload see."""
    cached = f", {workload.prefix:.0%} of it in the cache" if workload.prefix else ""
    lines = [f"Speed, for prompts of {workload.prompt:,} tokens{cached} and answers of {workload.output:,}"]
    context = workload.prompt + workload.output / 2
    for rows in batches(roofline, context):
        step = roofline.decode(rows, context)
        parts = (("products", step.products_s), ("memory", step.memory_s), ("links", step.communication_s), ("overhead", step.overhead_s))
        shown = ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in parts if seconds)
        said = f"{step.seconds * 1e3:.1f} ms a step: {shown}; {step.binds} binds"
        lines.append(row(f"{rows} at a time", f"{rows / step.seconds:,.0f} tok/s", said))
    seconds = roofline.prefill_s(workload.prompt, roofline.cached(workload))
    lines.append(
        row(
            "prefill",
            f"{(workload.prompt - roofline.cached(workload)) / seconds:,.0f} tok/s",
            f"{seconds * 1e3:,.0f} ms for a prompt alone",
        )
    )
    served = serve(roofline, workload)
    asked = "as many as run" if workload.rate is None else f"{workload.rate:g} requests/s"
    limits = {"cache": "the cache has room for no more", "max_num_seqs": "--max-num-seqs allows no more", "rate": ""}
    more = f"; more is asked for than it can do, and {limits[served.limit]}" if served.is_saturated else ""
    said = f"{served.requests_per_s:.2f} requests/s, {served.running:.0f} at a time{more}"
    lines.append(row(f"at {asked}", f"{served.output_tokens_per_s:,.0f} tok/s", said))
    said = f"then one every {served.between_tokens_s * 1e3:,.1f} ms"
    lines.append(row("  first token", f"{served.first_token_s * 1e3:,.0f} ms", said))
    return lines


def _sizes(plan: Plan) -> list[tuple[str, int]]:
    topology = plan.topology
    return [
        ("tensor", topology.tensor),
        ("pipeline", topology.pipeline),
        ("data", topology.data),
        ("prefill context", topology.prefill_context),
        ("decode context", topology.decode_context),
        ("experts", topology.expert),
    ]


def row(name: str, value: str, said: str = "") -> str:
    """One line of the page."""
    return f"  {name:<{_WIDTH}}{value:>14}  {said}".rstrip()


def gib(size: int) -> str:
    return f"{size / 2**30:,.2f} GiB"


def count(number: int) -> str:
    """70.6 B, 135 M."""
    return f"{number / 1e9:.1f} B" if number >= 1e9 else f"{number / 1e6:.0f} M"
