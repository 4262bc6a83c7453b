"""MoE: a router chooses a few experts for each token; their feed-forwards are added up with the router's weights."""

from collections.abc import Iterator

import torch

from octavo.device.arena import Arena
from octavo.layers.choices import Choices
from octavo.layers.linear import Linear
from octavo.layers.stored import Layer, Stored
from octavo.ops.moe_experts import Facts
from octavo.ops.moe_route import Facts as RouteFacts
from octavo.parallel.cut import ONE, Cut, Group, cut
from octavo.quant.unquantized import Scheme


class MoE(Layer):
    """num_chosen experts a token, whose probabilities are made to add up to 1. expert_names: gate, up and down as the disk calls them.

    Ranks cut the intermediate channels of every expert between them; the router is whole on each.
    """

    def __init__(
        self, hidden_size: int, intermediate_size: int, *, num_experts: int, num_chosen: int, expert_names: tuple[str, str, str]
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.whole_intermediate_size = intermediate_size
        self.num_experts = num_experts
        self.num_chosen = num_chosen
        self.expert_names = expert_names
        self.gate = Linear(hidden_size, num_experts, out_dtype=torch.float32)
        self.shard(ONE)

    def shard(self, group: Group) -> None:
        self._cut = cut(0, self.whole_intermediate_size, group, "intermediate channels")
        self.intermediate_size = self.whole_intermediate_size if self._cut is None else self._cut.length

    def create(self, scheme: Scheme, device: torch.device) -> None:
        self.gate_up = scheme.matrices(self.num_experts, 2 * self.intermediate_size, self.hidden_size, device)
        self.down = scheme.matrices(self.num_experts, self.hidden_size, self.intermediate_size, device)

    def stored(self, path: str) -> Iterator[Stored]:
        gate, up, down = self.expert_names
        size, rows = self.intermediate_size, (self.whole_intermediate_size, self.hidden_size)
        columns = None if self._cut is None else Cut(1, self._cut.start, self._cut.length)
        for number in range(self.num_experts):
            expert = f"{path}.experts.{number}"
            yield Stored(f"{expert}.{gate}.weight", rows, self.gate_up[number, :size], self._cut)
            yield Stored(f"{expert}.{up}.weight", rows, self.gate_up[number, size:], self._cut)
            yield Stored(f"{expert}.{down}.weight", rows[::-1], self.down[number], columns)

    def finish(self, choices: Choices) -> None:
        self._route = choices.take("moe_route", RouteFacts(num_experts=self.num_experts, top_k=self.num_chosen, renormalize=True))
        self._facts = Facts(
            num_experts=self.num_experts,
            top_k=self.num_chosen,
            hidden=self.hidden_size,
            intermediate=self.intermediate_size,
            dtype=self.gate_up.dtype,
        )
        self._experts = choices.take("moe_experts", self._facts)
        self.gate_up.data = self._experts.pack(self.gate_up.data, self._facts)
        self.down.data = self._experts.pack(self.down.data, self._facts)

    def forward(self, out: torch.Tensor, x: torch.Tensor, arena: Arena) -> None:
        """out, x [tokens, hidden]; out may be x."""
        tokens = x.shape[0]
        with arena.scope():
            logits = arena.empty(tokens, self.num_experts, dtype=torch.float32)
            self.gate(logits, x)
            weights = arena.empty(tokens, self.num_chosen, dtype=torch.float32)
            experts = arena.empty(tokens, self.num_chosen, dtype=torch.int32)
            self._route(weights, experts, logits)
            scratch = arena.empty(self._experts.scratch_size(self._facts, tokens), dtype=torch.uint8)
            self._experts(out, x, experts, weights, self.gate_up, self.down, scratch)
