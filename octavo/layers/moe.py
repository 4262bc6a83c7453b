"""MoE: a router chooses a few experts for each token; their feed-forwards are added up with the router's weights."""

from collections.abc import Iterator

import torch

from octavo.device.arena import Arena
from octavo.layers import experts
from octavo.layers.choices import Choices
from octavo.layers.experts import Shape
from octavo.layers.linear import Linear
from octavo.layers.stored import Layer, Stored
from octavo.ops.moe_route import Facts as RouteFacts
from octavo.parallel.cut import ONE, Group, cut, run
from octavo.quant.format import Scheme


class MoE(Layer):
    """num_chosen experts a token, whose probabilities are made to add up to 1. expert_names: gate, up and down as the disk calls them.

    Ranks cut the intermediate channels of every expert between them, or with expert parallelism share the experts out; the router is whole
    on each.
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
        self.gate = Linear(hidden_size, num_experts, out_dtype=torch.float32, role="router")
        self.shard(ONE)

    def shard(self, group: Group) -> None:
        self._first, self.num_held = run(self.num_experts, group.expert_rank, group.expert_size)
        self._cut = None if group.expert_size > 1 else cut(0, self.whole_intermediate_size, group, "intermediate channels")

    def create(self, scheme: Scheme, device: torch.device, path: str) -> None:
        held = range(self._first, self._first + self.num_held)
        shape = Shape(path, self.expert_names, held, self.num_chosen, self.hidden_size, self.whole_intermediate_size, self._cut)
        self.experts = experts.make(scheme, shape, device)

    def stored(self, path: str) -> Iterator[Stored]:
        yield from self.experts.stored()

    def finish(self, choices: Choices) -> None:
        self._route = choices.take("moe_route", RouteFacts(num_experts=self.num_experts, top_k=self.num_chosen, renormalize=True))
        self.experts.finish(choices)

    def forward(self, out: torch.Tensor, x: torch.Tensor, arena: Arena) -> None:
        """out, x [tokens, hidden]; out may be x."""
        tokens = x.shape[0]
        with arena.scope():
            logits = arena.empty(tokens, self.num_experts, dtype=torch.float32)
            self.gate(logits, x)
            weights = arena.empty(tokens, self.num_chosen, dtype=torch.float32)
            chosen = arena.empty(tokens, self.num_chosen, dtype=torch.int32)
            self._route(weights, chosen, logits)
            self.experts(out, x, chosen, weights, arena)
