"""Mistral: the plain decoder whose layers may all look back over one window."""

from dataclasses import dataclass

from octavo.config.schema import DecoderConfig, Keys, uniform_windows
from octavo.layers.decoder import CausalLM


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    @classmethod
    def read_windows(cls, keys: Keys, num_layers: int) -> tuple[int, ...]:
        return uniform_windows(keys, num_layers, default=4096)


class Model(CausalLM):
    """Nothing beyond the plain decoder."""
