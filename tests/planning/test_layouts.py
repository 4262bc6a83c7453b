"""How ranks share a model: experts, layers, vocabulary and kv heads add up to the whole; what cannot be cut is refused with a remedy."""

import math
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ConfigError
from octavo.loading.build import build_meta
from octavo.loading.finish import resident_bytes
from octavo.parallel.cut import Group
from octavo.planning.hardware import parse
from octavo.planning.memory import make_room
from octavo.planning.ranks import build_ranks, describe
from octavo.planning.topology import Topology
from tests.planning.test_ledger import check_weights
from tests.planning.written import FORMATS, load_rank, written_config
from tests.quant.checkpoints import configured
from tests.quant.test_fp8 import BLOCK

WHOLE = Topology()


def experts_bytes(config: Any, group: Group) -> int:
    model = build_meta(config, "cpu", group).model
    return sum(tensor.nbytes for path, tensor in model.named_parameters() if ".experts." in path)


@pytest.mark.parametrize("name", ["plain", "fp8 by block", "awq"])
@pytest.mark.parametrize("count", [5, 8])
def test_experts_are_shared_out_whole(tmp_path: Path, name: str, count: int) -> None:
    """Also where they do not divide evenly; each rank's real memory is what is planned for it, and the rank that is planned has most."""
    config = written_config(tmp_path, "mixtral", FORMATS[name], num_local_experts=count)
    topology = Topology(tensor=4, is_expert_parallel=True)
    groups = [topology.group(rank) for rank in range(4)]
    assert sum(experts_bytes(config, group) for group in groups) == experts_bytes(config, Group())
    real = [resident_bytes(load_rank(config, group)) for group in groups]
    assert real == [build_meta(config, "cpu", group).weights_bytes for group in groups]
    planned = build_ranks(config, topology)[0]
    assert (planned.weights_bytes, planned.experts) == (max(real), math.ceil(count / 4))


def test_experts_over_replicas(tmp_path: Path) -> None:
    """The size of expert parallelism is tensor x prefill context x data; the rest of the model is cut by the tensor ranks alone."""
    config = written_config(tmp_path, "mixtral", FORMATS["plain"], num_local_experts=8)
    topology = Topology(tensor=2, data=2, prefill_context=2, is_expert_parallel=True)
    assert (topology.expert, topology.ranks) == (8, 8)
    rank, cut = build_ranks(config, topology)[0], build_ranks(config, Topology(tensor=2))[0]
    assert rank.experts == 1
    assert rank.parts["routed experts"] * 8 == build_ranks(config, WHOLE)[0].parts["routed experts"]
    assert {part: size for part, size in rank.parts.items() if "expert" not in part} == {
        part: size for part, size in cut.parts.items() if "expert" not in part
    }


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "mixtral"])
@pytest.mark.parametrize("is_tied", [False, True])
def test_stages_add_up(tmp_path: Path, model_type: str, is_tied: bool) -> None:
    """To the whole, but for what several stages hold: tables of rotations, and a tied table at both ends."""
    config = written_config(tmp_path, model_type, FORMATS["plain"], num_hidden_layers=6, tie_word_embeddings=is_tied)
    whole = build_ranks(config, WHOLE)[0]
    stages = build_ranks(config, Topology(pipeline=3))
    assert [stage.layers for stage in stages] == [(0, 2), (2, 4), (4, 6)]
    assert [state for stage in stages for state in stage.states] == whole.states
    for part, size in whole.parts.items():
        held = [stage.parts.get(part, 0) for stage in stages]
        if part == "tables":
            assert held == [size] * 3
        elif part == "embedding":
            assert held == [size, 0, size if is_tied else 0]
        else:
            assert sum(held) == size
            assert part != "head" or held[:2] == [0, 0]
    assert "head" in whole.parts or is_tied
    tokens = [make_room(config, each, parse("l4").card, Topology(pipeline=3)).bytes_per_token for each in stages]
    assert sum(tokens) == make_room(config, whole, parse("l4").card, WHOLE).bytes_per_token


def test_layers_that_do_not_divide() -> None:
    """The last stage has the head and so no more layers than any other."""
    counts = [len(stage) for stage in Topology(pipeline=4).stages(61)]
    assert sum(counts) == 61
    assert counts[-1] == min(counts)
    assert max(counts) - min(counts) == 1
    assert [len(stage) for stage in Topology(pipeline=4).stages(63)] == [16, 16, 16, 15]


def test_fewer_kv_heads_than_ranks(tmp_path: Path) -> None:
    """Each is held by several ranks, so is its cache."""
    config = written_config(tmp_path, "llama", FORMATS["plain"], num_key_value_heads=2)
    check_weights(config)
    ranks = {size: build_ranks(config, Topology(tensor=size))[0] for size in (1, 2, 4)}
    assert [rank.kv_heads for rank in ranks.values()] == [2, 1, 1]
    sizes = [sum(state.spec.bytes_per_token for state in rank.states) for rank in ranks.values()]
    assert sizes == [sizes[0], sizes[0] // 2, sizes[0] // 2]
    assert "each is held 2 times" in Topology(tensor=4).check(2, 2)[0]


def test_a_vocabulary_that_does_not_divide(tmp_path: Path) -> None:
    """The first ranks have a row more than the last; the rank that is planned has most."""
    config = written_config(tmp_path, "llama", FORMATS["plain"], vocab_size=257)
    rows = [build_meta(config, "cpu", Group(rank, 4)).model.lm_head.num_tokens for rank in range(4)]
    assert rows == [65, 65, 65, 62]
    check_weights(config)


@pytest.mark.parametrize("cache_dtype", ["fp8_e4m3", "int8_per_token_head", "int4_per_token_head", "nvfp4"])
@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_caches_of_every_format(tmp_path: Path, model_type: str, cache_dtype: str) -> None:
    check_weights(written_config(tmp_path, model_type, FORMATS["plain"], cache_dtype=cache_dtype, block_size=32))


def test_parameters_are_those_of_the_plain_model(tmp_path: Path) -> None:
    """Whatever format the checkpoint has, and a tied table once."""
    plain = describe(written_config(tmp_path / "plain", "llama", FORMATS["plain"])).parameters
    assert plain == describe(written_config(tmp_path / "awq", "llama", FORMATS["awq"])).parameters
    tied = describe(written_config(tmp_path / "tied", "llama", FORMATS["plain"], tie_word_embeddings=True)).parameters
    assert plain - tied == 256 * 128


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gemma3_text", "mixtral"])
def test_each_weight_is_in_its_part(tmp_path: Path, model_type: str) -> None:
    """As counted by hand from the shapes of the plain model, 2 bytes a number; a coded one has its scales apart."""
    config = written_config(tmp_path / "plain", model_type, FORMATS["plain"])
    parts = build_ranks(config, WHOLE)[0].parts
    heads, hidden, channels, layers = 4 * 32, 128, 256, 2
    assert parts["attention"] == layers * 4 * heads * hidden * 2
    assert parts["embedding"] == 256 * hidden * 2
    if model_type == "mixtral":
        assert parts["routed experts"] == layers * 5 * 3 * hidden * channels * 2
        assert layers * 5 * hidden * 2 <= parts["routers"] <= layers * 16 * hidden * 2  # kept in panels of rows
    else:
        assert parts["dense"] == layers * 3 * hidden * channels * 2
    assert parts["norms"] >= (2 * layers + 1) * hidden * 2
    assert set(parts) <= {"attention", "embedding", "head", "dense", "routed experts", "routers", "norms", "tables", "scales"}
    assert parts["scales"] == layers * 64
    blocks = build_ranks(written_config(tmp_path / "blocks", model_type, FORMATS["fp8 by block"]), WHOLE)[0].parts
    assert blocks["attention"] == parts["attention"] // 2
    assert blocks["scales"] >= 4 * (blocks["attention"] + blocks.get("dense", 0) + blocks.get("routed experts", 0)) / 32**2


def test_heads_that_ranks_cannot_share(tmp_path: Path) -> None:
    config = written_config(tmp_path, "llama", FORMATS["plain"])
    with pytest.raises(ConfigError, match=r"tensor parallel size 3 does not divide 4 attention heads[\s\S]*use 1, 2 or 4"):
        build_ranks(config, Topology(tensor=3))


def test_a_cut_inside_a_block_names_expert_parallelism(tmp_path: Path) -> None:
    """The experts' channels are 2 blocks, which 4 ranks cannot cut; shared out whole they need not be."""
    number_format = FORMATS["fp8 by block"]
    config = written_config(tmp_path, "mixtral", number_format, intermediate_size=2 * BLOCK, num_local_experts=8)
    with pytest.raises(ConfigError, match=r"experts.*whole groups of 32[\s\S]*expert parallelism"):
        build_ranks(config, Topology(tensor=4))
    assert build_ranks(config, Topology(tensor=4, is_expert_parallel=True))[0].experts == 2
    assert configured(tmp_path / "coded", "fp8").model.quantization == "fp8"


@pytest.mark.parametrize(
    ("sizes", "kv_heads", "fact"),
    [
        ({"tensor": 4, "decode_context": 3}, 1, "does not divide --tensor-parallel-size 4"),
        ({"tensor": 8, "decode_context": 4}, 4, "only 2 ranks hold the same kv head"),
        ({"tensor": 2, "decode_context": 2}, 2, "only 1 ranks hold the same kv head"),
        ({"pipeline": 5}, 8, "more than the model's 4 layers"),
        ({"data": 0}, 8, "--data-parallel-size must be at least 1"),
    ],
)
def test_sizes_that_cannot_be(sizes: dict[str, int], kv_heads: int, fact: str) -> None:
    with pytest.raises(ConfigError, match=fact):
        Topology(**sizes).check(4, kv_heads)
    assert Topology(tensor=8, decode_context=4).check(4, 2) == ["2 kv heads on 8 ranks: each is held 4 times, so is its cache"]
