"""A plan as plain data, for `--json` and for programs. Sizes in bytes, of one device where the key says so by a list: an entry a stage."""

from typing import Any

import msgspec

from octavo.planning.advice import Remedy
from octavo.planning.plan import Plan
from octavo.planning.speed import Roofline, Step, serve
from octavo.planning.workload import Workload


def of(plan: Plan, remedies: list[Remedy], roofline: Roofline, workload: Workload) -> dict[str, Any]:
    """JSON-ready."""
    config, topology, room = plan.config, plan.topology, plan.tightest
    return {
        "model": plan.model,
        "model_type": config.model.model_type,
        "quantization": config.model.quantization,
        "dtype": config.model.dtype,
        "kv_cache_dtype": config.cache.dtype,
        "hardware": {"card": plan.hardware.card.name, "count": plan.hardware.count, "nodes": plan.hardware.num_nodes},
        "topology": {
            "tensor_parallel_size": topology.tensor,
            "pipeline_parallel_size": topology.pipeline,
            "data_parallel_size": topology.data,
            "prefill_context_parallel_size": topology.prefill_context,
            "decode_context_parallel_size": topology.decode_context,
            "expert_parallel_size": topology.expert,
            "devices": topology.ranks,
            "processes": topology.processes,
            "cores": topology.least_cores,
        },
        "parameters": plan.parameters,
        "weights_bytes": [rank.weights_bytes for rank in plan.ranks],
        "weights_parts_bytes": [rank.parts for rank in plan.ranks],
        "holds": [
            {"layers": list(rank.layers), "heads": rank.heads, "kv_heads": rank.kv_heads, "experts": rank.experts} for rank in plan.ranks
        ],
        "arena_bytes": [rank.arena_bytes for rank in plan.ranks],
        "runtime_bytes": room.runtime_bytes,
        "graph_bytes": room.graph_bytes,
        "budget_bytes": room.budget_bytes,
        "cache_bytes": [each.cache_bytes for each in plan.rooms],
        "block_size": config.cache.block_size,
        "block_bytes": [each.block_bytes for each in plan.rooms],
        "num_blocks": min(each.num_blocks for each in plan.rooms),
        "cache_bytes_per_token": plan.bytes_per_token,
        "state_bytes_per_sequence": plan.bytes_per_sequence,
        "cache_tokens": plan.cache_tokens,
        "max_concurrency": plan.max_concurrency,
        "max_model_len": config.model.max_model_len,
        "longest_model_len": room.longest,
        "max_num_seqs": config.scheduler.max_num_seqs,
        "max_num_batched_tokens": config.scheduler.max_num_batched_tokens,
        "speed": speed(roofline, workload),
        "fits": plan.fits,
        "reasons": plan.reasons,
        "remedies": [{"change": remedy.change, "result": remedy.result} for remedy in remedies],
        "notes": plan.notes,
        "decisions": config.reasons,
    }


def speed(roofline: Roofline, workload: Workload) -> dict[str, Any]:
    """The roofline of a workload."""
    context = workload.prompt + workload.output / 2
    return {
        "assumed": msgspec.to_builtins(roofline.efficiency),
        "multiplied_in": roofline.multiplied_in,
        "workload": msgspec.to_builtins(workload),
        "prefill_s": roofline.prefill_s(workload.prompt, roofline.cached(workload)),
        "decode": [{"requests": rows, **terms(roofline.decode(rows, context))} for rows in batches(roofline, context)],
        "served": msgspec.to_builtins(serve(roofline, workload)),
    }


def batches(roofline: Roofline, context: float) -> list[int]:
    """Numbers of requests with that context that steps are shown for: those that have room."""
    most = roofline.most_rows(context)
    return [rows for rows in (1, 8, 32, 128, 512) if rows == 1 or rows <= most]


def terms(step: Step) -> dict[str, Any]:
    """Each term of a step, in seconds."""
    return {**msgspec.to_builtins(step), "seconds": step.seconds, "binds": step.binds}
