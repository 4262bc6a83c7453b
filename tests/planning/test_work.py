"""Operations and bytes of a step against other counts: torch's on transformers' models, checkpoints, a simulation."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch.utils.flop_counter import FlopCounterMode

from octavo.config.config import Config
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.planning import hardware, sources, work
from octavo.planning.ranks import build_ranks, describe
from octavo.planning.topology import Topology
from octavo.planning.work import Work
from tests.models import oracle
from tests.models.driver import config_for
from tests.quant import test_compressed_tensors, test_fp8, test_gptq
from tests.quant.checkpoints import configured, write

TOKENS = 32


def work_of(config: Config, topology: Topology | None = None, stage: int = 0) -> Work:
    layout = topology or Topology()
    return work.of(config, build_ranks(config, layout)[stage], layout)


def written(model_type: str, folder: Path, **changes: Any) -> Config:
    return config_for(oracle.save(oracle.make(model_type, changes, torch.bfloat16), folder), dtype="bfloat16", max_model_len=256)


def known(name: str) -> Config:
    options = Options(model=name)
    return resolve(options, "server", hardware.parse("h100").facts(), sources.find(options))


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", oracle.TYPES)
def test_products_are_those_that_torch_counts(model_type: str, tmp_path: Path) -> None:
    model = oracle.make(model_type, {"attn_implementation": "eager", "experts_implementation": "eager"})
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.arange(3, 3 + TOKENS)[None], use_cache=False)
    planned = work_of(config_for(oracle.save(model, tmp_path), dtype="float32", max_model_len=256))
    # it multiplies every query with every key and masks afterwards, windows too
    unmasked = msgspec.structs.replace(planned, heads=[(width, size, 0) for width, size, _ in planned.heads])
    expected = 2 * planned.products(TOKENS, TOKENS) + 2 * unmasked.attention_products(TOKENS, TOKENS)
    # it computes the angles of positions as a product as well
    assert counter.get_total_flops() == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen2.5-7B", "Qwen3-8B"])
def test_a_token_takes_two_operations_a_parameter(name: str) -> None:
    config = known(name)
    planned = work_of(config)
    table = config.model.vocab_size * planned.hidden
    # norms, biases and the table that tokens are looked up in are not multiplied with
    assert planned.products(1, 1) == pytest.approx(describe(config).parameters - table, rel=1e-3)


@pytest.mark.parametrize("model_type", oracle.TYPES)
def test_devices_together_do_what_one_does(model_type: str, tmp_path: Path) -> None:
    config = written(model_type, tmp_path, num_attention_heads=4, num_key_value_heads=4)
    whole = work_of(config)
    half = work_of(config, Topology(tensor=2))
    assert 2 * half.attention_products(8, 100) == whole.attention_products(8, 100)
    assert 2 * half.cache_bytes(8, 100) == whole.cache_bytes(8, 100)
    stages = [work_of(config, Topology(pipeline=2), stage) for stage in (0, 1)]
    assert sum(stage.products(8, 2) for stage in stages) == whole.products(8, 2)
    assert sum(stage.weight_bytes(8, 2) for stage in stages) == whole.weight_bytes(8, 2)
    assert sum(stage.attention_products(8, 100) for stage in stages) == whole.attention_products(8, 100)
    assert [stage.is_last for stage in stages] == [False, True]
    assert stages[0].head_products == 0
    if whole.num_experts == 0:
        assert 2 * half.products(8, 2) == whole.products(8, 2)


def test_experts_are_shared_out_or_cut() -> None:
    config = config_for(Path("made"), hf_config=_mixture(num_local_experts=8), dtype="bfloat16", max_model_len=256, load_format="dummy")
    whole, cut = work_of(config), work_of(config, Topology(tensor=2))
    apart = work_of(config, Topology(tensor=2, is_expert_parallel=True))
    assert (whole.experts, cut.experts, apart.experts) == (8, 8, 4)
    experts = whole.num_chosen * whole.expert_products
    assert cut.num_chosen * cut.expert_products == experts / 2
    assert apart.products(1, 0) - apart.dense_products == pytest.approx(experts / 2)
    # with two replicas the experts are in quarters, and tokens of both come
    replicas = work_of(config, Topology(tensor=2, data=2, is_expert_parallel=True))
    assert replicas.experts == 2
    assert replicas.products(1, 0, replicas=2) - replicas.dense_products == pytest.approx(experts / 2)


@pytest.mark.parametrize("tokens", [1, 3, 10, 40])
def test_experts_that_are_read_are_those_of_a_simulation(tokens: int) -> None:
    config = config_for(Path("made"), hf_config=_mixture(num_local_experts=16), dtype="bfloat16", max_model_len=256, load_format="dummy")
    planned = work_of(config, Topology(data=2, is_expert_parallel=True))
    draw = random.Random(tokens)
    mine = set(range(planned.experts))
    trials = 4000
    read = sum(len(mine & {e for _ in range(tokens) for e in draw.sample(range(16), planned.num_chosen)}) for _ in range(trials)) / trials
    assert planned.chosen_experts(tokens) == pytest.approx(read, rel=0.03)
    assert planned.weight_bytes(tokens, 0) == planned.dense_bytes + planned.chosen_experts(tokens) * planned.expert_bytes
    assert planned.weight_bytes(tokens, 0, replicas=2) == planned.weight_bytes(2 * tokens, 0)


@pytest.mark.parametrize(
    ("scheme", "encode", "quantization"),
    [
        ("fp8", test_fp8.per_tensor, test_fp8.STATIC),
        ("fp8", test_fp8.blocks, test_fp8.BLOCKED),
        ("gptq", test_gptq.encoder(4), test_gptq.config(4)),
        (
            "compressed_tensors",
            test_compressed_tensors.packed(),
            test_compressed_tensors.config(test_compressed_tensors.group(["Linear"])),
        ),
    ],
)
def test_bytes_are_those_of_the_checkpoint(scheme: str, encode: Any, quantization: dict[str, Any], tmp_path: Path) -> None:
    made = write(tmp_path, encode, quantization)
    planned = work_of(configured(made.folder, scheme, "bfloat16", max_model_len=256))
    stored = load_file(made.folder / "model.safetensors")
    linear = sum(each.numel() * each.element_size() for name, each in stored.items() if ".layers." in name and "norm" not in name)
    shapes = [each for name, each in stored.items() if name.endswith("weight_shape")]
    linear -= sum(each.numel() * each.element_size() for each in shapes)  # said by the configuration too
    assert planned.dense_bytes == pytest.approx(linear, rel=0.03)  # scales may be kept in another width
    plain = work_of(configured(made.plain, None, "bfloat16", max_model_len=256))
    assert planned.dense_products == plain.dense_products
    assert plain.dense_bytes == 2 * plain.dense_products
    assert plain.head_bytes == 2 * plain.head_products


@pytest.mark.parametrize(("scheme", "share"), [("fp8_per_tensor", 1 / 2), ("int8", 1 / 2), ("int4", 1 / 4), ("nvfp4", 1 / 4)])
def test_weights_that_are_quantized_while_loading_are_read_as_they_will_lie(scheme: str, share: float, tmp_path: Path) -> None:
    folder = oracle.save(oracle.make("llama", {"hidden_size": 128, "intermediate_size": 256}, torch.bfloat16), tmp_path)
    plain = work_of(configured(folder, None, "bfloat16", max_model_len=256))
    coded = work_of(configured(folder, scheme, "bfloat16", max_model_len=256))
    assert plain.dense_bytes * share <= coded.dense_bytes < plain.dense_bytes * share * 1.3
    assert coded.dense_products == plain.dense_products


def test_windows_bound_what_attention_sees(tmp_path: Path) -> None:
    planned = work_of(written("mistral", tmp_path, sliding_window=64))
    assert planned.attention_products(1, 1000) == planned.attention_products(1, 64)
    assert planned.cache_bytes(2, 1000) == 2 * planned.cache_bytes(1, 64)


def test_a_head_is_multiplied_for_rows_that_sample_alone(tmp_path: Path) -> None:
    planned = work_of(written("llama", tmp_path))
    assert planned.products(10, 3) - planned.products(10, 2) == planned.head_products == 256 * 64
    assert planned.weight_bytes(10, 0) == planned.weight_bytes(10, 1) - planned.head_bytes
    assert planned.vocabulary == 256


def _mixture(**changes: Any) -> dict[str, Any]:
    model = oracle.make("mixtral", changes)
    found: dict[str, Any] = json.loads(model.config.to_json_string())
    return found
