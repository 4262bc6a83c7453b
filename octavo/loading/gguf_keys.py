"""GGUF's keys for a model: the inverse of octavo/checkpoint/gguf_config.py. What a file would say is read back and must be the model's own
configuration; what GGUF has no words for is refused by name.
"""

from dataclasses import fields
from typing import Any

import numpy as np
import torch

from octavo import plugins
from octavo.checkpoint import gguf_config
from octavo.checkpoint.gguf import GgufHeader
from octavo.config.rope import RopeConfig
from octavo.config.schema import DecoderConfig
from octavo.errors import ConfigError

# model type -> GGUF's architecture
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}
ROPE_FACTORS = "rope_freqs.weight"


def architecture(model_type: str) -> str:
    """Raises ConfigError for a model type that GGUF files are not read of either."""
    if model_type not in ARCHITECTURES:
        raise ConfigError(f"octavo cannot write GGUF files of {model_type}", f"it writes those of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[model_type]


def keys(model_type: str, config: DecoderConfig) -> dict[str, Any]:
    """Metadata below the architecture's name, and general.architecture. Raises ConfigError for a rope that GGUF cannot say."""
    found: dict[str, Any] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.dimension_count": config.head_dim,
        "vocab_size": config.vocab_size,
    }
    window = max(config.windows)
    full = next((rope for rope, one in zip(config.ropes, config.windows, strict=True) if not one), config.ropes[0])
    if window:
        found["attention.sliding_window"] = window
    name = architecture(model_type)
    if name == "gemma3":
        found |= _sliding(config)
    if model_type == "mixtral":
        experts: Any = config
        found |= {"expert_count": experts.num_local_experts, "expert_used_count": experts.num_experts_per_tok}
    found |= _rope(full)
    return {"general.architecture": name, **{f"{name}.{key}": value for key, value in found.items()}}


def _sliding(config: DecoderConfig) -> dict[str, Any]:
    """Which layers of Gemma 3 look back over a window, and how those rotate; what is usual is not said."""
    found: dict[str, Any] = {}
    kinds = [window > 0 for window in config.windows]
    period = next((period for period in (6, *range(1, len(kinds) + 1)) if kinds == _every(period, len(kinds))), None)
    if period != 6:
        found["attention.sliding_window_pattern"] = kinds if period is None else period
    sliding = next((rope for rope, is_sliding in zip(config.ropes, kinds, strict=True) if is_sliding), None)
    if sliding is not None and sliding.theta != 10_000.0:
        found["rope.freq_base_swa"] = sliding.theta
    return found


def _every(period: int, count: int) -> list[bool]:
    """All but every `period`th."""
    return [bool((layer + 1) % period) for layer in range(count)]


def _rope(rope: RopeConfig) -> dict[str, Any]:
    found: dict[str, Any] = {"rope.freq_base": rope.theta}
    if rope.kind in ("default", "llama3"):  # the second is a tensor
        return found
    if rope.kind not in ("linear", "yarn"):
        raise ConfigError(f"GGUF has no words for the rope type {rope.kind!r}", "write compressed-tensors: --scheme int4 or int8")
    factor = rope.factor or 1.0
    found |= {"rope.scaling.type": rope.kind, "rope.scaling.factor": factor}
    if rope.kind == "yarn":
        found["rope.scaling.original_context_length"] = rope.original_length
        if rope.attention_factor is not None:
            found["rope.scaling.yarn_attn_factor"] = rope.attention_factor / (0.1 * np.log(factor) + 1.0)
        found |= {"rope.scaling.yarn_beta_fast": rope.beta_fast, "rope.scaling.yarn_beta_slow": rope.beta_slow}
    return found


def rope_factors(config: DecoderConfig) -> torch.Tensor | None:
    """What Llama 3.1 divides each frequency by, which GGUF keeps as a tensor; None: the model rotates otherwise."""
    rope = config.ropes[0]
    if rope.kind != "llama3":
        return None
    assert rope.factor is not None
    numbers = gguf_config.llama3_factors(
        rope.theta, rope.dim, rope.factor, rope.low_freq_factor, rope.high_freq_factor, rope.original_length
    )
    return torch.from_numpy(numbers).float()


def check(header: GgufHeader, config: DecoderConfig) -> None:
    """Raise ConfigError, naming what differs, unless a file with this header is read as a model of `config`."""
    told = gguf_config.config(header)
    read = plugins.load("models", told["model_type"]).Config.parse(told, max_length=config.max_length)
    differing = []
    for field in fields(config):
        ours = getattr(config, field.name)
        # a type without the field computes as if it had the field's own default
        theirs = getattr(read, field.name, field.default)
        if not _is_equal(ours, theirs):
            differing.append(f"{field.name} {ours!r} would be {theirs!r}")
    if differing:
        raise ConfigError(f"GGUF cannot say what this model computes: {'; '.join(differing)}", "write compressed-tensors instead")


def _is_equal(ours: Any, theirs: Any) -> bool:
    """Floats to the precision that GGUF has."""
    if isinstance(ours, RopeConfig) and isinstance(theirs, RopeConfig):
        return all(_is_equal(getattr(ours, field.name), getattr(theirs, field.name)) for field in fields(ours))
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(map(_is_equal, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= 1e-6 * abs(ours)
    return bool(ours == theirs)
