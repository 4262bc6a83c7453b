"""Qwen2 and Qwen2.5: the plain decoder with biases on queries, keys and values; upper layers may look back over a window."""

from dataclasses import dataclass

from octavo.config.schema import DecoderConfig, Keys, windows_from_layer
from octavo.layers.attention import SelfAttention
from octavo.layers.decoder import CausalLM, DecoderLayer
from octavo.layers.rope import Rope


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    @classmethod
    def read_windows(cls, keys: Keys, num_layers: int) -> tuple[int, ...]:
        return windows_from_layer(keys, num_layers)


class Layer(DecoderLayer):
    def make_attention(self, config: Config, index: int, rope: Rope) -> SelfAttention:
        return SelfAttention(config, rope, config.windows[index], bias=True)


class Model(CausalLM):
    layer_class = Layer
