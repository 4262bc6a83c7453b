"""Building a model: sizes known before anything is read, the account of tensors, dummy weights, the arena of a step."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.device.cpu import create
from octavo.errors import CheckpointError, ConfigError, MemoryPlanError, UnsupportedModelError
from octavo.layers.stored import stored_parameters
from octavo.loading.build import bare, build, build_meta, pieces
from octavo.loading.finish import resident
from tests.models import oracle
from tests.models.driver import Driver, config_for, measured_bytes

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
}
MIXTURE = {**SMALL, "model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 2}
GEMMA = {**SMALL, "model_type": "gemma3_text", "sliding_window": 16, "sliding_window_pattern": 2, "head_dim": 16}


def dummy(hf_config: dict[str, Any], **more: Any) -> Any:
    return config_for(Path("."), hf_config=hf_config, load_format="dummy", **more)


def refuses_checkpoint(folder: Path, *words: str) -> None:
    config = config_for(folder)
    with pytest.raises(CheckpointError) as caught:
        build(config, create(config.device))
    for word in words:
        assert word in str(caught.value)


def rewrite(folder: Path, change: Any) -> Path:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("hf_config", [SMALL, MIXTURE, GEMMA], ids=lambda config: config["model_type"])
def test_the_size_is_known_before_anything_is_read(hf_config: dict[str, Any], dtype: str) -> None:
    config = dummy(hf_config, dtype=dtype)
    before = build_meta(config)
    built = build(config, create(config.device))
    assert before.weights_bytes == built.weights_bytes
    assert before.choices == built.choices
    assert [tuple(t.shape) for t in resident(before.model)] == [tuple(t.shape) for t in resident(built.model)]
    assert all(tensor.is_meta for tensor in resident(before.model))
    storages = {tensor.untyped_storage().data_ptr() for tensor in resident(built.model)}
    assert len(storages) == 1, "all that stays lies in one run of memory"
    assert next(resident(built.model)).untyped_storage().nbytes() >= built.weights_bytes


@pytest.mark.parametrize("mode", ["fast", "reference"])
@pytest.mark.parametrize("hf_config", [SMALL, MIXTURE, GEMMA], ids=lambda config: config["model_type"])
def test_the_arena_of_a_step_is_known_before_it_runs(hf_config: dict[str, Any], mode: str) -> None:
    config = dummy(hf_config, mode=mode)
    driver = Driver(config)
    first, second = driver.sequence(), driver.sequence()
    driver.step([(first, list(range(3, 43)))])
    driver.arena.high_water = 0
    driver.step([(first, [5]), (second, list(range(9, 30)))])
    assert driver.arena.high_water == measured_bytes(config, counts=[1, 21], lengths=[41, 21])


def test_dummy_weights_depend_on_the_seed_alone() -> None:
    def run(config: Any) -> torch.Tensor:
        driver = Driver(config)
        return driver.step([(driver.sequence(), [5, 6, 7])])[0]

    config = dummy(SMALL)
    other = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, seed=1))
    first = run(config)
    assert torch.isfinite(first).all()
    assert torch.equal(first, run(config))
    assert not torch.equal(first, run(other))


def test_choices_are_counted_with_reasons() -> None:
    built = build_meta(dummy(SMALL, dtype="float16"))
    # qkv, o, gate and up, down in each layer, and the head
    assert built.choices["linear"].startswith("reference x 13; not cpu.linear_tile: dtype float16")
    assert set(built.choices) == {"linear", "embedding", "rms_norm", "add_rms_norm", "gated_activation", "attention"}


def test_attention_layers_tell_what_they_keep() -> None:
    layers = build_meta(dummy(GEMMA, dtype="bfloat16")).model.attention_layers()
    assert list(layers) == ["model.layers.0.self_attn", "model.layers.1.self_attn", "model.layers.2.self_attn"]
    specs = [layer.spec() for layer in layers.values()]
    assert [(spec.kind, spec.window, spec.bytes_per_token) for spec in specs] == [("sliding", 16, 64), ("full", 0, 64), ("sliding", 16, 64)]


def test_pieces_make_up_the_model() -> None:
    model = bare(dummy(MIXTURE))
    whole = [stored.path for stored in stored_parameters(model)]
    parts = [stored.path for path, piece in pieces(model) for stored in stored_parameters(piece, path)]
    assert sorted(whole) == sorted(parts)
    assert "model.layers.2.block_sparse_moe.experts.1.w3.weight" in whole


def test_an_unsupported_scheme_and_several_ranks_are_refused() -> None:
    config = dummy(SMALL)
    with pytest.raises(UnsupportedModelError, match="quantization 'quark' is not supported"):
        build_meta(msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, quantization="quark")))
    with pytest.raises(ConfigError, match="tensor parallel size 2"):
        build_meta(msgspec.structs.replace(config, parallel=msgspec.structs.replace(config.parallel, tensor_parallel_size=2)))


def test_weights_that_do_not_fit_are_refused_before_they_are_read() -> None:
    config = dummy(SMALL)
    device = create(config.device)
    device.available_bytes = lambda: 1000  # type: ignore[method-assign]
    with pytest.raises(MemoryPlanError) as caught:
        build(config, device)
    assert "GiB of weights" in str(caught.value)
    assert "hint: " in str(caught.value)


@pytest.mark.oracle
def test_an_untied_model_without_a_head_names_it(tmp_path: Path) -> None:
    folder = oracle.save(oracle.make("llama"), tmp_path)
    refuses_checkpoint(rewrite(folder, lambda tensors: tensors.pop("lm_head.weight")), "lm_head.weight")


@pytest.mark.oracle
def test_a_tied_model_may_repeat_its_embedding_but_nothing_else(tmp_path: Path) -> None:
    made = oracle.make("llama", {"tie_word_embeddings": True})
    folder = oracle.save(made, tmp_path)
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}))
    config = config_for(folder)
    build(config, create(config.device))
    rewrite(folder, lambda tensors: tensors["lm_head.weight"].add_(1))
    refuses_checkpoint(folder, "lm_head.weight")


@pytest.mark.oracle
def test_missing_misshapen_and_unused_tensors_are_all_listed(tmp_path: Path) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.1.mlp.gate_proj.scale"] = torch.ones(3)
        del tensors["model.layers.0.self_attn.k_proj.weight"]
        tensors["model.norm.weight"] = torch.ones(65)

    folder = rewrite(oracle.save(oracle.make("llama"), tmp_path), spoil)
    refuses_checkpoint(folder, "model.layers.1.mlp.gate_proj.scale", "model.layers.0.self_attn.k_proj.weight", "model.norm.weight", "65")


@pytest.mark.oracle
def test_a_bias_that_the_configuration_denies_is_not_ignored(tmp_path: Path) -> None:
    folder = oracle.save(oracle.make("llama", {"attention_bias": True}), tmp_path)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attention_bias": False}))
    refuses_checkpoint(folder, "model.layers.0.self_attn.q_proj.bias")
