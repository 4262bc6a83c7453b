"""A model's config.json is read strictly: what octavo does not compute is an error that names it, at load."""

from typing import Any

import pytest

from octavo import plugins
from octavo.config.schema import DecoderConfig, check_model_type
from octavo.errors import UnsupportedModelError

PLAIN: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def parse(model_type: str, **keys: Any) -> DecoderConfig:
    config: DecoderConfig = plugins.load("models", model_type).Config.parse({"model_type": model_type, **PLAIN, **keys})
    return config


def refused(model_type: str, *words: str, **keys: Any) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        parse(model_type, **keys)
    for word in (model_type, *words):
        assert word in str(caught.value)


def test_an_unknown_model_type_is_named_with_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        check_model_type("qwen33")
    assert "'qwen33'" in caught.value.fact
    assert "did you mean qwen3?" in str(caught.value)
    for known in ("gemma3_text", "llama", "mistral", "mixtral", "qwen2", "qwen3"):
        assert known in str(caught.value)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "gemma3_text", "mixtral"])
def test_an_unknown_key_that_says_something_is_refused(model_type: str) -> None:
    refused(model_type, "'embedding_multiplier' = 12.0", embedding_multiplier=12.0)
    parse(model_type, embedding_multiplier=None, use_new_attention=False, extra={}, note="")


def test_keys_that_say_nothing_about_the_mathematics_pass() -> None:
    parse(
        "llama",
        use_cache=True,
        torch_dtype="bfloat16",
        transformers_version="5.1",
        architectures=["X"],
        attention_dropout=0.1,
        bos_token_id=1,
    )


def test_defaults_follow_the_family() -> None:
    assert parse("llama").head_dim == 16
    assert parse("qwen3").head_dim == 128
    assert parse("gemma3_text").head_dim == 256
    assert parse("llama", num_key_value_heads=None).num_key_value_heads == 4
    assert parse("gemma3_text").tie_word_embeddings
    assert not parse("llama").tie_word_embeddings
    assert parse("gemma3_text").hidden_act == "gelu_tanh"
    assert parse("llama").ropes[0].theta == 1e4
    assert parse("mixtral").ropes[0].theta == 1e6


def test_windows() -> None:
    assert parse("llama").windows == (0,) * 6
    assert parse("mistral").windows == (4096,) * 6
    assert parse("mistral", sliding_window=None).windows == (0,) * 6
    assert parse("mixtral").windows == (0,) * 6
    assert parse("qwen2", sliding_window=8, max_window_layers=2).windows == (0,) * 6
    assert parse("qwen2", sliding_window=8, max_window_layers=2, use_sliding_window=True).windows == (0, 0, 8, 8, 8, 8)
    kinds = ["full_attention", "sliding_attention"] * 3
    assert parse("qwen3", sliding_window=8, use_sliding_window=True, layer_types=kinds).windows == (0, 8) * 3
    assert parse("gemma3_text", sliding_window=8).windows == (8, 8, 8, 8, 8, 0)
    assert parse("gemma3_text", sliding_window=8, sliding_window_pattern=3).windows == (8, 8, 0) * 2
    assert parse("gemma3_text", sliding_window=8, layer_types=kinds).windows == (0, 8) * 3


def test_windows_can_be_switched_off() -> None:
    config = plugins.load("models", "mistral").Config.parse({"model_type": "mistral", **PLAIN}, sliding=False)
    assert config.windows == (0,) * 6


def test_windows_that_do_not_add_up_are_refused() -> None:
    refused("llama", "layer_types", layer_types=["sliding_attention"] * 6)
    refused("llama", "sliding_window", sliding_window=128)
    refused("mistral", "layer_types", layer_types=["full_attention"] * 6)
    refused("gemma3_text", "there are 6 layers", layer_types=["full_attention"] * 5)
    refused("gemma3_text", "chunked_attention", layer_types=["chunked_attention"] * 6)


def test_ropes_of_old_and_new_files_are_the_same() -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 64}
    old = parse("llama", rope_theta=500.0, rope_scaling={"type": "yarn", **yarn})
    new = parse("llama", rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, **yarn})
    assert old.ropes == new.ropes
    assert old.ropes[0].theta == 500.0
    old = parse("gemma3_text", rope_theta=9.0, rope_local_base_freq=7.0, rope_scaling={"rope_type": "linear", "factor": 8.0})
    full = {"rope_type": "linear", "rope_theta": 9.0, "factor": 8.0}
    new = parse("gemma3_text", rope_parameters={"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 7.0}})
    assert old.ropes == new.ropes
    assert [rope.theta for rope in old.ropes] == [7.0] * 5 + [9.0]


def test_the_length_a_model_was_made_for() -> None:
    assert parse("llama").max_length == 256
    assert parse("llama", rope_scaling={"type": "linear", "factor": 4.0}).max_length == 1024
    assert parse("llama", rope_scaling={"type": "yarn", "factor": 4.0}).max_length == 1024
    assert parse("llama", rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}).max_length == 256


def test_ropes_that_octavo_does_not_compute_are_refused() -> None:
    refused("llama", "'mrope'", "longrope", rope_scaling={"type": "mrope", "mrope_section": [1, 2, 3]})
    refused("llama", "lacks factor", rope_scaling={"type": "linear"})
    refused("llama", "beta_fast", rope_scaling={"type": "linear", "factor": 2.0, "beta_fast": 3.0})
    refused("llama", "partial_rotary_factor", partial_rotary_factor=0.5)
    refused(
        "llama", "short_factor has 3 numbers, not 8", rope_scaling={"type": "longrope", "short_factor": [1.0] * 3, "long_factor": [1.0] * 8}
    )
    refused("gemma3_text", "rope_theta", rope_parameters={"rope_theta": 5.0, "rope_type": "default"})


def test_values_that_cannot_be_are_refused() -> None:
    refused("llama", "no 'hidden_size'", hidden_size=None)
    refused("llama", "'hidden_size' = '64'", hidden_size="64")
    refused("llama", "'attention_bias' = 3", attention_bias=3)
    refused("llama", "relu", hidden_act="relu")
    refused("llama", "does not divide 4 attention heads", num_key_value_heads=3)
    refused("llama", "head_dim", head_dim=15)
