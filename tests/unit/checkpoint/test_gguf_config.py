"""GGUF headers in config.json's words."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import environment
from octavo.checkpoint import gguf_config, hf_config, index
from octavo.checkpoint.gguf import read_header
from octavo.checkpoint.names import Located
from octavo.errors import CheckpointError, UnsupportedModelError
from tests.loading.gguf_bytes import value, write

EMBEDDING = ((8, 64), 0, bytes(8 * 64 * 4))


def header(folder: Path, architecture: str, changes: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None) -> Path:
    """A small file of `architecture`. changes: keys below its name, or whole keys that begin with a slash; None drops one."""
    keys: dict[str, Any] = {
        "block_count": 2,
        "context_length": 4096,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 500000.0,
    } | (changes or {})
    metadata = {key[1:] if key.startswith("/") else f"{architecture}.{key}": what for key, what in keys.items() if what is not None}
    return write(folder / "m.gguf", {"general.architecture": architecture, **metadata}, {"token_embd.weight": EMBEDDING, **(tensors or {})})


def config(*arguments: Any) -> dict[str, Any]:
    return hf_config.read(header(*arguments))[0]


@pytest.mark.model
@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct", "gemma-3-270m", "Qwen2.5-Coder-0.5B-Instruct"])
def test_real_files_say_what_their_folders_say(name: str) -> None:
    folder = (environment.test_models() or Path()) / name
    if not (folder / "config.json").exists():
        pytest.skip("OCTAVO_TEST_MODELS has no folder of this model")
    ours, generation = hf_config.read(folder / f"{name}.gguf")
    theirs, their_generation = hf_config.read(folder)
    # says nothing about the mathematics, or is said by layer_types
    silent = {"attention_dropout", "use_cache", "initializer_range", "sliding_window_pattern", "_sliding_window_pattern"}
    if name.startswith("Qwen"):
        silent.add("tie_word_embeddings")  # the file has two quantizations of the one matrix, and each is used for what it was made for
        assert ours["tie_word_embeddings"] is False
    both = {key: (ours.get(key), value) for key, value in theirs.items() if key not in silent and ours.get(key) != value}
    assert both == {}
    assert set(ours) - set(theirs) <= {"rope_scaling"}
    ends = generation["eos_token_id"]
    assert their_generation["eos_token_id"] in (ends, ends[0])


def test_llama(tmp_path: Path) -> None:
    got = config(tmp_path, "llama", {"rope.dimension_count": 16, "/tokenizer.ggml.eos_token_id": 2})
    assert got["model_type"] == "llama"
    assert (got["num_attention_heads"], got["num_key_value_heads"], got["head_dim"], got["vocab_size"]) == (4, 2, 16, 8)
    assert (got["rms_norm_eps"], got["rope_theta"], got["rope_scaling"]) == (1e-6, 500000.0, None)
    assert (got["tie_word_embeddings"], got["attention_bias"], got["eos_token_id"], got["bos_token_id"]) == (True, False, 2, None)
    assert "partial_rotary_factor" not in got


def test_partial_rotation_is_said(tmp_path: Path) -> None:
    assert config(tmp_path, "llama", {"rope.dimension_count": 8})["partial_rotary_factor"] == 0.5


def test_output_weight_means_untied(tmp_path: Path) -> None:
    assert config(tmp_path, "llama", {}, {"output.weight": EMBEDDING})["tie_word_embeddings"] is False


def test_mixtral_and_mistral_are_llama_with_more_keys(tmp_path: Path) -> None:
    got = config(tmp_path, "llama", {"expert_count": 8, "expert_used_count": 2})
    assert (got["model_type"], got["num_local_experts"], got["num_experts_per_tok"]) == ("mixtral", 8, 2)
    got = config(tmp_path, "llama", {"attention.sliding_window": 4096})
    assert (got["model_type"], got["sliding_window"]) == ("mistral", 4096)


def test_qwen3(tmp_path: Path) -> None:
    got = config(tmp_path, "qwen3", {"attention.key_length": 32, "attention.value_length": 32})
    assert (got["model_type"], got["head_dim"], got["attention_bias"]) == ("qwen3", 32, False)


def test_gemma3_patterns_and_the_one_odd_size(tmp_path: Path) -> None:
    base = {"attention.sliding_window": 512, "attention.key_length": 32, "attention.value_length": 32}
    got = config(tmp_path, "gemma3", {**base, "block_count": 7, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0})
    assert got["layer_types"] == ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"]
    assert (got["query_pre_attn_scalar"], got["rope_scaling"]) == (32, {"rope_type": "linear", "factor": 8.0})
    assert config(tmp_path, "gemma3", {**base, "block_count": 62})["query_pre_attn_scalar"] == 16
    got = config(tmp_path, "gemma3", {**base, "attention.sliding_window_pattern": value([1, 0], 7)})
    assert got["layer_types"] == ["sliding_attention", "full_attention"]


def test_yarn(tmp_path: Path) -> None:
    got = config(
        tmp_path, "qwen2", {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32768}
    )
    assert got["rope_scaling"] == {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def test_llama3s_factors_are_recognized(tmp_path: Path) -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    factors = gguf_config.llama3_factors(500000.0, 64, **scaling).astype("<f4")
    assert (factors.min(), factors.max()) == (1.0, 8.0)
    tensors = {"rope_freqs.weight": ((32,), 0, factors.tobytes())}
    got = config(tmp_path, "llama", {"rope.dimension_count": 64, "attention.key_length": 64, "attention.value_length": 64}, tensors)
    assert got["rope_scaling"] == {"rope_type": "llama3", **scaling}


@pytest.mark.oracle
def test_llama3s_factors_are_transformers() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    parameters = {"rope_type": "llama3", "rope_theta": 500000.0, **scaling}
    theirs, _ = ROPE_INIT_FUNCTIONS["llama3"](
        LlamaConfig(hidden_size=128, num_attention_heads=2, head_dim=64, rope_parameters=parameters), device="cpu"
    )
    plain = 500000.0 ** -(np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(plain / gguf_config.llama3_factors(500000.0, 64, **scaling), theirs.numpy(), rtol=1e-5)


def test_other_factors_are_said_as_longrope(tmp_path: Path) -> None:
    factors = np.linspace(1, 5, 8, dtype="<f4")
    got = config(tmp_path, "llama", {}, {"rope_freqs.weight": ((8,), 0, factors.tobytes())})["rope_scaling"]
    assert (got["rope_type"], got["attention_factor"]) == ("longrope", 1.0)
    np.testing.assert_allclose(got["long_factor"], factors, rtol=1e-6)
    assert got["short_factor"] == got["long_factor"]


def test_what_ends_generation_and_what_sampling_is_recommended(tmp_path: Path) -> None:
    changes = {
        "/tokenizer.ggml.eos_token_id": 1,
        "/tokenizer.ggml.eot_token_id": 4,
        "/tokenizer.ggml.tokens": ["a", "<eos>", "<end_of_turn>", "<|im_end|>", "<|eot|>"],
        "/tokenizer.ggml.token_type": value([1, 3, 3, 1, 3], 5),
        "/general.sampling.temp": 0.6,
        "/general.sampling.top_k": 20,
    }
    generation = hf_config.read(header(tmp_path, "qwen3", changes))[1]
    assert generation == {"eos_token_id": [1, 4, 2], "do_sample": True, "temperature": 0.6, "top_k": 20}


def test_an_unknown_architecture_and_an_unknown_key_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"(?s)'mamba'.*llama, qwen2, qwen3, gemma3"):
        config(tmp_path, "mamba")
    with pytest.raises(UnsupportedModelError, match=r"llama\.attention\.clamp_kqv"):
        config(tmp_path, "llama", {"attention.clamp_kqv": 8.0})
    with pytest.raises(UnsupportedModelError, match="expert_count"):
        config(tmp_path, "qwen2", {"expert_count": 4})
    assert config(tmp_path, "qwen2", {"expert_count": 0})["model_type"] == "qwen2"
    with pytest.raises(UnsupportedModelError, match="differs between layers"):
        config(tmp_path, "llama", {"attention.head_count_kv": value([2, 4], 4)})
    with pytest.raises(UnsupportedModelError, match="'longrope'"):
        config(tmp_path, "llama", {"rope.scaling.type": "longrope"})


def test_missing_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"does not say llama\.block_count"):
        config(tmp_path, "llama", {"block_count": None})
    with pytest.raises(CheckpointError, match="no token_embd"):
        hf_config.read(write(tmp_path / "m.gguf", read_header(header(tmp_path, "llama")).metadata))
    with pytest.raises(CheckpointError, match=r"general\.architecture"):
        hf_config.read(write(tmp_path / "m.gguf", {"k": 1}))


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        hf_config.read(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert hf_config.read(tmp_path) == ({"model_type": "llama"}, {})
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 3}')
    assert hf_config.read(str(tmp_path))[1] == {"eos_token_id": 3}
    for wrong in ("[1]", "{", "\xff"):
        (tmp_path / "config.json").write_text(wrong, encoding="latin-1")
        with pytest.raises(CheckpointError, match=r"config\.json"):
            hf_config.read(tmp_path)


def test_a_split_model_is_read_from_all_its_parts(tmp_path: Path) -> None:
    base = read_header(header(tmp_path, "llama")).metadata
    parts = [tmp_path / f"big-0000{number}-of-00002.gguf" for number in (1, 2)]
    write(parts[0], base | {"split.count": value(2, 2), "split.no": value(0, 2)}, {"token_embd.weight": EMBEDDING})
    with pytest.raises(CheckpointError, match=r"lacks big-00002-of-00002\.gguf"):
        index.read(parts[0])
    write(parts[1], {"split.count": value(2, 2), "split.no": value(1, 2)}, {"output.weight": EMBEDDING})
    found = index.read(parts[0])
    assert {name: entry.file.name for name, entry in found.entries.items()} == {
        "token_embd.weight": parts[0].name,
        "output.weight": parts[1].name,
    }
    assert found.names.candidates("lm_head.weight")[0] == [Located("output.weight")]
