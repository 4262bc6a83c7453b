"""How much memory a model will take, from its meta tensors: scratch of the largest step, run in an arena that only counts, and cache."""

import torch

from octavo.attention.batch import Batch
from octavo.config.config import Config
from octavo.device.arena import Arena
from octavo.kvcache.plan import bytes_for, plan_cache
from octavo.kvcache.specs import CachePlan, LayerState
from octavo.layers.decoder import CausalLM
from octavo.sampling.pipeline import Pipeline
from octavo.worker.sampling import measure_sampling


def measure_arena(model: CausalLM, config: Config, pipeline: Pipeline) -> int:
    """Bytes. model: finished on the meta device. What layers and back ends take grows with the numbers of tokens and rows and with the
    longest context, so one step is the largest."""
    layers = model.attention_layers()
    plan = _least_plan(model, config)
    for number, group in enumerate(plan.groups):
        pages = torch.empty(plan.num_blocks, group.page_bytes, dtype=torch.uint8, device="meta")
        for name in group.layers:
            layers[name].bind(pages, number, plan.block_size)
    tokens, rows = config.scheduler.max_num_batched_tokens, config.scheduler.max_num_seqs
    return _measure_step(model, config, pipeline, len(plan.groups), tokens, min(rows, tokens))


def least_cache_bytes(model: CausalLM, config: Config) -> int:
    """The smallest cache that the engine starts with: one request of the context length has room, or of a token if the length is open."""
    length = 1 if config.model.is_max_model_len_auto else config.model.max_model_len
    return bytes_for(_least_plan(model, config), length, config.scheduler.max_num_batched_tokens)


def _least_plan(model: CausalLM, config: Config) -> CachePlan:
    states = [LayerState(name, layer.spec()) for name, layer in model.attention_layers().items()]
    return plan_cache(states, config.cache.block_size, 0, num_blocks_override=2)


def _measure_step(model: CausalLM, config: Config, pipeline: Pipeline, num_groups: int, num_tokens: int, num_rows: int) -> int:
    arena = Arena()
    hidden = model(_batch(config, num_groups, num_tokens, num_rows), arena)
    measure_sampling(model, hidden, pipeline, num_rows, num_tokens, arena)
    return arena.high_water


def _batch(config: Config, num_groups: int, num_tokens: int, num_rows: int) -> Batch:
    """A step of which only the sizes are known."""
    length, size = config.model.max_model_len, config.cache.block_size

    def ints(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    return Batch(
        num_tokens=num_tokens,
        num_rows=num_rows,
        tokens=ints(num_tokens),
        positions=ints(num_tokens),
        row_starts=ints(num_rows + 1),
        lengths=ints(num_rows),
        tables=[ints(num_rows, -(-length // size)) for _ in range(num_groups)],
        slots=[ints(num_tokens, dtype=torch.int64) for _ in range(num_groups)],
        max_count=min(length, num_tokens - num_rows + 1),
        max_length=length,
        block_size=size,
    )
