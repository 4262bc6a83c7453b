"""Each figure of a plan as a formula with its numbers, so that it can be followed by hand."""

from octavo.planning import calibrate_terms, communication
from octavo.planning.calibrate_terms import Terms
from octavo.planning.plan import Plan
from octavo.planning.speed import Roofline
from octavo.planning.table import gib
from octavo.planning.workload import Workload


def of(plan: Plan, roofline: Roofline, workload: Workload) -> str:
    """One formula a line."""
    config, room, topology = plan.config, plan.tightest, plan.topology
    rank = plan.ranks[plan.rooms.index(room)]
    cache, scheduler = config.cache, config.scheduler
    layers: dict[tuple[str, int, int], int] = {}
    for state in rank.states:
        key = (state.spec.kind, state.spec.bytes_per_token, state.spec.window)
        layers[key] = layers.get(key, 0) + 1
    lines = ["How it is computed (of one device, unless it says otherwise)"]
    lines.append(f"budget = memory x utilization = {room.total_bytes:,} x {cache.memory_utilization:g} = {room.budget_bytes:,}")
    lines.append("weights = " + " + ".join(f"{part} {size:,}" for part, size in rank.parts.items()) + f" = {room.weights_bytes:,}")
    lines.append(
        f"scratch = the most that one step of {scheduler.max_num_batched_tokens:,} tokens and {scheduler.max_num_seqs:,} rows takes, "
        f"by a run on meta tensors = {room.arena_bytes:,}"
    )
    if cache.memory_bytes is None:
        taken = (room.runtime_bytes, room.graph_bytes, room.weights_bytes, room.arena_bytes)
        numbers = " - ".join(f"{size:,}" for size in (room.budget_bytes, *taken))
        lines.append(f"cache = budget - runtime - graphs - weights - scratch = {numbers} = {room.budget_bytes - sum(taken):,}")
    for (kind, size, window), number in layers.items():
        per_head = f"{size:,} bytes a token ({rank.kv_heads} kv heads)"
        lines.append(f"{number} layers of {kind} attention: {per_head}" + (f", of the last {window:,} tokens only" if window else ""))
    lines.append(f"block = {cache.block_size} tokens of the layers that share a table = {room.block_bytes:,} bytes")
    lines.append(f"blocks = {gib(room.cache_bytes)} / {room.block_bytes:,} = {room.num_blocks:,}, of which one belongs to nobody")
    length = config.model.max_model_len
    lines.append(
        f"concurrency = blocks / blocks of a request of {length:,} tokens = {room.max_concurrency:,.2f}"
        + (f", x {topology.data} replicas = {plan.max_concurrency:,.2f}" if topology.data > 1 else "")
    )
    lines.append(f"tokens of cache = concurrency x {length:,} = {plan.cache_tokens:,}")
    if topology.decode_context > 1:
        lines.append(f"decode context parallelism: each device keeps every {topology.decode_context}th token of a request")
    lines.append(
        f"devices = tensor {topology.tensor} x pipeline {topology.pipeline} x data {topology.data} x prefill context "
        f"{topology.prefill_context} = {topology.ranks}"
    )
    if topology.is_expert_parallel:
        lines.append(
            f"expert parallel size = tensor x prefill context x data = {topology.tensor} x {topology.prefill_context} x {topology.data} "
            f"= {topology.expert}"
        )
    lines.append(
        f"processes = {topology.api_servers} API servers + {topology.data} engine cores + {topology.ranks} workers"
        + (" + 1 coordinator" if topology.data > 1 else "")
        + f" = {topology.processes}"
    )
    return "\n".join([*lines, "", *_speed(roofline, workload)])


def _speed(roofline: Roofline, workload: Workload) -> list[str]:
    """The terms of one step of decoding, with one request and with eight."""
    if roofline.efficiency.measured is not None:
        return _measured(roofline, roofline.efficiency.measured, workload)
    card, reached, topology = roofline.hardware.card, roofline.efficiency, roofline.plan.topology
    rate, context = card.rate(roofline.multiplied_in), workload.prompt + workload.output // 2
    replicas = topology.data if topology.is_expert_parallel else 1
    lines = [f"A step of decoding with a context of {context:,} tokens ({reached.source})"]
    for rows in (1, 8):
        step = roofline.decode(rows, context)
        products = sum(stage.products(rows, rows, replicas) for stage in roofline.stages)
        attention = sum(stage.attention_products(rows, context) for stage in roofline.stages)
        weights = sum(stage.weight_bytes(rows, rows, replicas) for stage in roofline.stages)
        cache = sum(stage.cache_bytes(rows, context) for stage in roofline.stages) / topology.decode_context
        lines.append(
            f"{rows} requests: products = 2 x ({products:,.0f} / {rate:.3g} {roofline.multiplied_in} + {attention:,.0f} / "
            f"{card.rate('bf16'):.3g} bf16) / {reached.products:g} = {step.products_s * 1e3:.3f} ms"
        )
        lines.append(
            f"  memory = (weights {weights:,.0f} + cache {cache:,.0f}) / ({card.bytes_per_s:.3g} x {reached.memory:g}) "
            f"= {step.memory_s * 1e3:.3f} ms"
        )
        for each in communication.of_a_step(roofline.stages[0], topology, roofline.hardware, rows, rows):
            lines.append(
                f"  {each.name}: {each.count} x ({each.link.latency_s * 1e6:g} us + {each.bytes_sent:,.0f} bytes / "
                f"{each.bytes_per_s:.3g}) over {each.link.name} = {each.seconds * 1e3:.3f} ms"
            )
        lines.append(f"  step = max(products, memory) + links + {step.overhead_s * 1e3:g} ms beside = {step.seconds * 1e3:.3f} ms")
    return lines


def _measured(roofline: Roofline, terms: Terms, workload: Workload) -> list[str]:
    """The parts of one step of decoding, by this machine's calibration."""
    context, stage = workload.prompt + workload.output // 2, roofline.stages[0]
    lines = [f"A step of decoding with a context of {context:,} tokens ({roofline.efficiency.source})"]
    for rows in (1, 8):
        found = calibrate_terms.features(stage, rows, rows, context)
        parts = [f"{name} {getattr(terms, name):.3g} s x {count:,.0f}" for name, count in found.items() if count and getattr(terms, name)]
        for count, times in calibrate_terms.weights(stage, rows, rows):
            parts.append(f"{count:,.0f} weights x {terms.weights_s(1, times):.3g} s, with {times:g} tokens each")
        lines.append(f"{rows} requests: " + " + ".join(parts) + f" = {roofline.decode(rows, context).seconds * 1e3:.3f} ms")
    return lines
