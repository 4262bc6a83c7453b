"""Mixtral: the plain decoder whose feed-forward is a mixture, two experts of eight for each token."""

from dataclasses import dataclass

import torch

from octavo.checkpoint.names import Expert, Row, Split
from octavo.config.schema import DecoderConfig, Keys, uniform_windows
from octavo.device.arena import Arena
from octavo.layers.decoder import CausalLM, DecoderLayer
from octavo.layers.moe import MoE


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    default_theta = 1_000_000.0

    rms_norm_eps: float = 1e-5
    num_experts_per_tok: int = 2
    num_local_experts: int = 8

    @classmethod
    def read_windows(cls, keys: Keys, num_layers: int) -> tuple[int, ...]:
        return uniform_windows(keys, num_layers, default=None)

    def check(self, keys: Keys) -> None:
        super().check(keys)
        if self.hidden_act != "silu":
            raise keys.refuse("hidden_act", self.hidden_act, "but experts compute silu only")


class Layer(DecoderLayer):
    def add_feed_forward(self, config: Config) -> None:
        self.block_sparse_moe = MoE(
            config.hidden_size,
            config.intermediate_size,
            num_experts=config.num_local_experts,
            num_chosen=config.num_experts_per_tok,
            expert_names=("w1", "w3", "w2"),
        )

    def feed_forward(self, x: torch.Tensor, arena: Arena) -> None:
        self.block_sparse_moe(x, x, arena)


class Model(CausalLM):
    """On disk the experts are apart (block_sparse_moe.experts.5.w1), or packed as transformers 5 holds them in memory."""

    layer_class = Layer

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        packed, apart, size = "model.layers.{i}.mlp", "model.layers.{i}.block_sparse_moe", config.intermediate_size
        self.names += (
            Row(f"{packed}.gate.weight", f"{apart}.gate.weight"),
            Row(f"{packed}.experts.gate_up_proj", apart + ".experts.{e}.w1.weight", (Expert(), Split(0, size))),
            Row(f"{packed}.experts.gate_up_proj", apart + ".experts.{e}.w3.weight", (Expert(), Split(size, size))),
            Row(f"{packed}.experts.down_proj", apart + ".experts.{e}.w2.weight", Expert()),
        )
