"""Qwen3: the plain decoder that norms each head of query and key before it rotates them."""

from dataclasses import dataclass

from octavo.config.schema import DecoderConfig, Keys, windows_from_layer
from octavo.layers.attention import SelfAttention
from octavo.layers.decoder import CausalLM, DecoderLayer
from octavo.layers.norm import RMSNorm
from octavo.layers.rope import Rope


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    default_head_dim = 128

    attention_bias: bool = False

    @classmethod
    def read_windows(cls, keys: Keys, num_layers: int) -> tuple[int, ...]:
        return windows_from_layer(keys, num_layers)


class Layer(DecoderLayer):
    def make_attention(self, config: Config, index: int, rope: Rope) -> SelfAttention:
        norms = (RMSNorm(config.head_dim, config.rms_norm_eps), RMSNorm(config.head_dim, config.rms_norm_eps))
        bias = config.attention_bias
        return SelfAttention(config, rope, config.windows[index], bias=bias, output_bias=bias, head_norm=norms)


class Model(CausalLM):
    layer_class = Layer
