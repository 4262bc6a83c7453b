"""The gated feed-forward: down(act(gate(x)) * up(x))."""

from typing import cast

import torch

from octavo.device.arena import Arena
from octavo.layers.choices import Choices
from octavo.layers.linear import FusedLinear, Linear, Part
from octavo.layers.stored import Layer
from octavo.ops.gated_activation import Facts, Kind


class GatedMLP(Layer):
    def __init__(self, hidden_size: int, intermediate_size: int, activation: str, bias: bool = False) -> None:
        super().__init__()
        what = "intermediate channels"
        parts = tuple(Part(name, intermediate_size, intermediate_size, what) for name in ("gate_proj", "up_proj"))
        self.gate_up = FusedLinear(hidden_size, parts=parts, bias=bias)
        self.down_proj = Linear(intermediate_size, hidden_size, bias=bias, cut_inputs=what, num_cuttable=intermediate_size)
        self.activation = activation

    def finish(self, choices: Choices) -> None:
        self._activate = choices.take(
            "gated_activation", Facts(kind=cast(Kind, self.activation), width=self.down_proj.in_size, dtype=choices.dtype)
        )

    def forward(self, out: torch.Tensor, x: torch.Tensor, arena: Arena) -> None:
        """out, x [tokens, hidden]; out may be x."""
        with arena.scope():
            gate_up = arena.empty(x.shape[0], self.gate_up.out_size, dtype=x.dtype)
            self.gate_up(gate_up, x)
            gated = arena.empty(x.shape[0], self.down_proj.in_size, dtype=x.dtype)
            self._activate(gated, gate_up)
            self.down_proj(out, gated)
