"""Advice: what to change when a plan does not fit, in order of what the change costs. Each remedy is a plan that was made and fits."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec

from octavo.config.options import Options
from octavo.errors import OctavoError
from octavo.planning import plan as plans
from octavo.planning.hardware import Hardware
from octavo.planning.plan import Plan
from octavo.planning.topology import Topology

_MOST = 4  # remedies told
_LEAST_LENGTH = 1024  # a shorter context is no remedy


class Remedy(msgspec.Struct, frozen=True):
    """A change, and what the plan then says."""

    change: str
    result: str


def find(plan: Plan, options: Options) -> list[Remedy]:
    """Free changes first, then what costs quality, then what costs devices."""
    found: list[Remedy] = []
    for change, new_options, hardware, topology in _changes(plan, options):
        try:
            made = plans.make(new_options, hardware, topology)
        except OctavoError:
            continue
        if made.fits:
            length = made.config.model.max_model_len
            found.append(Remedy(change, f"{made.cache_tokens:,} tokens of cache, {made.max_concurrency:,.1f} requests of {length:,}"))
        if len(found) == _MOST:
            break
    return found


def _changes(plan: Plan, options: Options) -> Iterator[tuple[str, Options, Hardware, Topology]]:
    hardware, topology, room = plan.hardware, plan.topology, plan.tightest

    def changed(**fields: Any) -> Options:
        return dataclasses.replace(options, **fields)

    if topology.ranks <= hardware.count:
        if room.longest >= _LEAST_LENGTH:
            yield f"--max-model-len {room.longest}", changed(max_model_len=room.longest), hardware, topology
        if plan.config.cache.memory_utilization < 0.95 and hardware.card.kind == "gpu":
            yield "--gpu-memory-utilization 0.95", changed(gpu_memory_utilization=0.95), hardware, topology
        if plan.config.scheduler.max_num_batched_tokens > 2048:
            fewer = changed(max_num_batched_tokens=2048, max_num_seqs=min(256, plan.config.scheduler.max_num_seqs))
            yield "--max-num-batched-tokens 2048 --max-num-seqs 256", fewer, hardware, topology
        if plan.config.cache.dtype == "bfloat16":
            yield "--kv-cache-dtype fp8", changed(kv_cache_dtype="fp8"), hardware, topology
    for size in (2, 4, 8):
        if size > topology.tensor and size * topology.pipeline * topology.data <= hardware.count:
            yield f"--tensor-parallel-size {size}", options, hardware, msgspec.structs.replace(topology, tensor=size)
    if plan.config.model.quantization is None and topology.ranks <= hardware.count:
        for scheme in ("fp8_per_tensor", "int4"):
            yield f"--quantization {scheme} (quantized while loading)", changed(quantization=scheme), hardware, topology
    for size in (2, 4, 8, 16):
        if size > topology.tensor and size > hardware.count:
            more = Hardware(hardware.card, size * topology.pipeline * topology.data)
            yield f"{more.name}, --tensor-parallel-size {size}", options, more, msgspec.structs.replace(topology, tensor=size)
