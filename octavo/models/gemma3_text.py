"""Gemma 3, text: five layers that look back over a window to one that sees everything, and norms on both sides of each sublayer."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from octavo.attention.batch import Batch
from octavo.config.rope import RopeConfig, read_rope
from octavo.config.schema import DecoderConfig, Keys, named, windows_by_kind
from octavo.device.arena import Arena
from octavo.layers.attention import SelfAttention
from octavo.layers.decoder import CausalLM, DecoderLayer
from octavo.layers.norm import RMSNorm
from octavo.layers.rope import Rope


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    default_head_dim = 256

    hidden_act: str = named("hidden_activation", "gelu_pytorch_tanh")
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    query_pre_attn_scalar: float = 256.0

    @classmethod
    def read_windows(cls, keys: Keys, num_layers: int) -> tuple[int, ...]:
        """layer_types; in older files every sixth layer, or every `sliding_window_pattern`th, sees everything."""
        pattern = keys.take("sliding_window_pattern", keys.take("_sliding_window_pattern", 6))
        derived = ["sliding_attention" if (layer + 1) % pattern else "full_attention" for layer in range(num_layers)]
        return windows_by_kind(keys, keys.take("layer_types", derived), keys.take("sliding_window", 4096), num_layers)

    @classmethod
    def read_ropes(cls, keys: Keys, windows: tuple[int, ...], head_dim: int) -> tuple[RopeConfig, ...]:
        """A way of rotating for each kind of layer; older files scale the full layers only and name the base of the others apart."""
        told: dict[str, Any] = keys.take("rope_parameters", {})
        if others := told.keys() - {"full_attention", "sliding_attention"}:
            raise keys.refuse("rope_parameters", sorted(others), "but they belong to a kind of layer")
        full = (told.get("full_attention") or {}) | keys.take("rope_scaling", {})
        sliding = told.get("sliding_attention") or {}
        length = keys.require("max_position_embeddings")

        def way(parameters: dict[str, Any], theta: float) -> RopeConfig:
            return read_rope(parameters, theta=theta, length=length, head_dim=head_dim, model_type=keys.model_type)

        full_way = way(full, keys.take("rope_theta", 1_000_000.0))
        sliding_way = way(sliding, keys.take("rope_local_base_freq", 10_000.0))
        return tuple(sliding_way if window else full_way for window in windows)


def norm(config: Config, size: int) -> RMSNorm:
    return RMSNorm(size, config.rms_norm_eps, offset=1.0, cast_before_weight=False)


class Layer(DecoderLayer):
    def __init__(self, config: Config, index: int, rope: Rope) -> None:
        super().__init__(config, index, rope)
        self.pre_feedforward_layernorm = norm(config, config.hidden_size)
        self.post_feedforward_layernorm = norm(config, config.hidden_size)

    def make_norm(self, config: Config) -> RMSNorm:
        return norm(config, config.hidden_size)

    def make_attention(self, config: Config, index: int, rope: Rope) -> SelfAttention:
        heads = (norm(config, config.head_dim), norm(config, config.head_dim))
        scale, bias = config.query_pre_attn_scalar**-0.5, config.attention_bias
        return SelfAttention(config, rope, config.windows[index], bias=bias, output_bias=bias, scale=scale, head_norm=heads)

    def forward(self, x: torch.Tensor, residual: torch.Tensor, next_norm: RMSNorm, batch: Batch, arena: Arena) -> None:
        """As in every decoder, but each sublayer's output is normed once more before it is added."""
        self.self_attn(x, x, batch, arena)
        self.post_attention_layernorm(x, x)
        self.pre_feedforward_layernorm.add(x, residual, x)
        self.feed_forward(x, arena)
        self.post_feedforward_layernorm(x, x)
        next_norm.add(x, residual, x)


class Model(CausalLM):
    layer_class = Layer

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.model.embed_tokens.scale = math.sqrt(config.hidden_size)
