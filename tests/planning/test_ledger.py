"""What is planned is what is allocated, to the byte: weights as the loader keeps them, blocks as the pool maps them, for any rank."""

from pathlib import Path

import pytest

from octavo.config.config import Config
from octavo.device.cpu import create
from octavo.kvcache.plan import plan_cache
from octavo.kvcache.specs import LayerState
from octavo.layers.decoder import CausalLM
from octavo.loading.build import build, build_meta
from octavo.loading.finish import aligned, resident, resident_bytes
from octavo.parallel.cut import Group
from octavo.planning.hardware import Hardware, this_cpu
from octavo.planning.memory import make_room
from octavo.planning.ranks import build_ranks
from octavo.planning.topology import Topology
from octavo.worker.cache import Cache
from tests.models.driver import NUM_BLOCKS
from tests.planning.written import FORMATS, MODEL_TYPES, load_rank, written_config

# the formats that differ most in how they are cut, with every type; the others with llama, and the rest with the slow tests
_EACH_TYPE = ("plain", "fp8 by block", "int4", "compressed-tensors w8a8")
PAIRS = [(model_type, name) for model_type in MODEL_TYPES for name in FORMATS]
QUICK = [pair for pair in PAIRS if pair[1] in _EACH_TYPE or (pair[0] == "llama" and not pair[1].startswith(("gptq 2", "gptq 3", "gptq 8")))]
SLOW = [pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS if pair not in QUICK]


def check_weights(config: Config) -> None:
    """Planned, of one rank in its real memory, for 1, 2 and 4 ranks; the parts add up."""
    for size in (1, 2, 4):
        topology = Topology(tensor=size)
        planned = build_ranks(config, topology)[0]
        assert sum(planned.parts.values()) == planned.weights_bytes
        sizes = []
        for rank in range(size):
            model = load_rank(config, topology.group(rank))
            sizes.append(resident_bytes(model))
            assert build_meta(config, "cpu", Group(rank, size)).weights_bytes == sizes[-1]
            check_cache(config, model, planned.states if rank == 0 else None)
        assert planned.weights_bytes == sizes[0] == max(sizes)


def check_cache(config: Config, model: CausalLM, planned: list[LayerState] | None) -> None:
    """The pool that is mapped has blocks of the planned size, and each layer of it what its spec says."""
    states = [LayerState(name, layer.spec()) for name, layer in model.attention_layers().items()]
    if planned is not None:
        assert states == planned
    block_size = config.cache.block_size
    plan = plan_cache(states, block_size, 0, num_blocks_override=NUM_BLOCKS)
    cache = Cache(plan, create(config.device), model)
    assert cache._buffer.nbytes == plan.num_blocks * plan.block_bytes
    for state in states:
        layout = model.attention_layers()[state.name].backend.layout()
        assert layout.page_bytes == state.spec.bytes_per_token * block_size


@pytest.mark.parametrize(("model_type", "name"), [*QUICK, *SLOW])
def test_weights_of_every_rank(tmp_path: Path, model_type: str, name: str) -> None:
    check_weights(written_config(tmp_path, model_type, FORMATS[name]))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_loader_takes_what_is_planned(tmp_path: Path, model_type: str) -> None:
    """One run of memory, exactly filled; the same room for the cache as the worker finds."""
    config = written_config(tmp_path, model_type, FORMATS["plain"])
    planned = build_ranks(config, Topology())[0]
    built = build(config, create(config.device))
    tensors = list(resident(built.model))
    places = sorted((tensor.data_ptr(), aligned(tensor.nbytes)) for tensor in tensors)
    assert places[-1][0] + places[-1][1] - places[0][0] == planned.weights_bytes
    assert sum(aligned(tensor.nbytes) for tensor in tensors) == planned.weights_bytes == built.weights_bytes
    room = make_room(config, planned, Hardware(this_cpu(), 1).card, Topology())
    states = [LayerState(name, layer.spec()) for name, layer in built.model.attention_layers().items()]
    plan = plan_cache(states, config.cache.block_size, 0, num_blocks_override=NUM_BLOCKS)
    cache = Cache(plan, create(config.device), built.model)
    assert (room.block_bytes, room.cache_bytes) == (plan.block_bytes, cache._buffer.nbytes)
    full = sum(state.spec.bytes_per_token for state in states if not state.spec.window)
    windows = sum(state.spec.bytes_per_token * state.spec.window for state in states)
    assert (room.bytes_per_token, room.bytes_per_sequence) == (full, windows)
