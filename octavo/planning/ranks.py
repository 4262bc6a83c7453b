"""Ranks: the finished meta model of one rank, and what each part of it and each pipeline stage takes, in bytes, as it will lie."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import torch

from octavo.config.config import Config
from octavo.kvcache.specs import LayerState
from octavo.layers.decoder import CausalLM
from octavo.layers.moe import MoE
from octavo.layers.stored import stored_parameters
from octavo.layers.weight import Weight
from octavo.loading.build import bare, build_meta, pieces
from octavo.loading.finish import aligned
from octavo.ops.weights import Coded
from octavo.parallel.cut import Group
from octavo.planning.topology import Topology
from octavo.sampling.pipeline import Pipeline
from octavo.worker.measure import measure_arena

# by a piece of a module's path, the first that fits; what fits none is a norm
_PARTS = (
    ("shared_expert", "shared experts"),
    ("experts", "routed experts"),
    ("block_sparse_moe", "routers"),
    ("rope", "tables"),
    ("embed_tokens", "embedding"),
    ("lm_head", "head"),
    ("norm", "norms"),
    ("self_attn.attention", "scales"),  # of the cache's keys and values
    ("self_attn", "attention"),
    ("mlp", "dense"),
)


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of one pipeline stage."""

    layers: tuple[int, int]  # first, and behind the last
    parts: dict[str, int]
    weights_bytes: int
    arena_bytes: int
    states: list[LayerState]
    block_multiple: int
    heads: int
    kv_heads: int
    experts: int  # of a layer that this rank holds, whole or a slice of each; 0: the model has none
    choices: dict[str, str]


class Whole(msgspec.Struct, frozen=True):
    """The model before it is cut. parameters: the numbers that it is made of; a table that is embedding and head counts once."""

    parameters: int
    layers: int
    kv_heads: int


def describe(config: Config) -> Whole:
    """In whatever format the numbers are kept."""
    plain = msgspec.structs.replace(config.model, quantization=None, quantization_config={}, hf_config=_plain(config.model.hf_config))
    model = bare(msgspec.structs.replace(config, model=msgspec.structs.replace(plain, load_format="dummy")), Group())
    numbers = sum(math.prod(each.shape) for each in stored_parameters(model) if not each.path.endswith(("k_scale", "v_scale")))
    layers = list(model.attention_layers().values())
    return Whole(numbers, len(layers), layers[0].num_kv_heads)


def build_ranks(config: Config, topology: Topology) -> list[Rank]:
    """Of each pipeline stage the rank that holds most: the first. Raises ConfigError for a model that cannot be cut so."""
    with _threads(config.device.threads):
        built = build_meta(config, "cpu", topology.group())
        model = built.model
        arena = measure_arena(model, config, _pipeline(config))
    sizes = {path: (part, size) for path, part, size in _sizes(model)}
    layers = list(model.attention_layers().items())
    tied = model.config.tie_word_embeddings
    ranks = []
    for number, stage in enumerate(topology.stages(len(layers))):
        is_first, is_last = number == 0, number == topology.pipeline - 1
        parts: dict[str, int] = {}
        for path, (part, size) in sizes.items():
            if _is_in(path, part, stage, is_first, is_last, tied):
                parts[part] = parts.get(part, 0) + size
        own = layers[stage.start : stage.stop]
        attention = own[0][1]
        ranks.append(
            Rank(
                layers=(stage.start, stage.stop),
                parts=parts,
                weights_bytes=sum(parts.values()),
                arena_bytes=arena,
                states=[LayerState(name, layer.spec()) for name, layer in own],
                block_multiple=math.lcm(*(layer.backend.block_multiple for _, layer in own)),
                heads=attention.num_heads,
                kv_heads=attention.num_kv_heads,
                experts=max((module.num_held for module in model.modules() if isinstance(module, MoE)), default=0),
                choices=built.choices,
            )
        )
    return ranks


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """As many as the worker computes with: back ends take scratch for each."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _plain(hf_config: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in hf_config.items() if key != "quantization_config"}


def _sizes(model: CausalLM) -> Iterator[tuple[str, str, int]]:
    """Every tensor that stays, once: the path of its module, the part of the model that it is, and its size."""
    seen: set[int] = set()
    scales = {id(tensor) for module in model.modules() if isinstance(module, Weight) for tensor in _beside_codes(module)}
    for top, piece in pieces(model):
        for path, module in piece.named_modules(prefix=top):
            for number, tensor in enumerate((*module.parameters(recurse=False), *module.buffers(recurse=False))):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    part = "scales" if id(tensor) in scales else _part(path)
                    yield f"{path}#{number}", part, aligned(tensor.numel() * tensor.dtype.itemsize)


def _beside_codes(weight: Weight) -> list[torch.Tensor]:
    """What a coded weight has beside its codes: scales, zeros, the order of its columns."""
    return list(weight.tensors)[1:] if isinstance(weight.layout, Coded) else []


def _part(path: str) -> str:
    return next((part for piece, part in _PARTS if piece in path), "norms")


def _is_in(path: str, part: str, stage: range, is_first: bool, is_last: bool, is_tied: bool) -> bool:
    words = path.partition("#")[0].split(".")
    number = next((int(word) for word in words if word.isdecimal()), None)
    if number is not None and "layers" in words:
        return number in stage
    if part == "embedding":
        return is_first or (is_last and is_tied)
    return part == "tables" or is_last


def _pipeline(config: Config) -> Pipeline:
    return Pipeline(
        num_rows=config.scheduler.max_num_seqs,
        vocab_size=config.model.vocab_size,
        num_tokens=config.model.sampled_ids,
        logprobs_mode=config.model.logprobs_mode,
        mode=config.device.op_implementations,
        device="cpu",
    )
