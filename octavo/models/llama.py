"""Llama: the plain decoder. Llama 1 to 3, SmolLM2, TinyLlama, Yi and many others are of this type."""

from dataclasses import dataclass

from octavo.config.schema import DecoderConfig
from octavo.layers.attention import SelfAttention
from octavo.layers.decoder import CausalLM, DecoderLayer
from octavo.layers.mlp import GatedMLP
from octavo.layers.rope import Rope


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    attention_bias: bool = False
    mlp_bias: bool = False


class Layer(DecoderLayer):
    def make_attention(self, config: Config, index: int, rope: Rope) -> SelfAttention:
        bias = config.attention_bias
        return SelfAttention(config, rope, config.windows[index], bias=bias, output_bias=bias)

    def add_feed_forward(self, config: Config) -> None:
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size, config.hidden_act, bias=config.mlp_bias)


class Model(CausalLM):
    layer_class = Layer
