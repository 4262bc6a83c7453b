"""What a worker tells the engine core when its model is loaded. Sizes are bytes of one rank."""

import msgspec

from octavo.kvcache.specs import LayerState


class WorkerFacts(msgspec.Struct, kw_only=True):
    states: list[LayerState]
    vocab_size: int
    block_multiple: int = 1  # block_size must be a multiple of this for the chosen attention back ends
    device_total_bytes: int
    device_available_bytes: int  # what the whole instance could have when the worker started
    budget_bytes: int  # what utilization allows the whole instance
    runtime_bytes: int  # interpreter, libraries, compiled kernels
    weights_bytes: int
    arena_bytes: int
    cache_budget_bytes: int  # what is left for the cache
    choices: dict[str, str] = {}  # op or layer -> implementation
    pids: list[int] = []
