"""Routing of a mixture of experts: the k most probable experts of each token and their weights.

Softmax over all experts, then the k largest, ties to the lower index; where the facts say so their weights are made to add up to 1
(Jiang et al., Mixtral of Experts, 2024).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    num_experts: int
    top_k: int
    renormalize: bool = True


class Reference:
    """weights float32 [tokens, top_k], ids int32 [tokens, top_k], logits float32 [tokens, num_experts]; most probable first."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    def __call__(self, weights: torch.Tensor, ids: torch.Tensor, logits: torch.Tensor) -> None:
        probability = torch.softmax(logits.to(torch.float32), -1)
        order = torch.sort(probability, dim=-1, descending=True, stable=True)
        chosen = order.values[:, : self.facts.top_k]
        weights.copy_(chosen / chosen.sum(-1, keepdim=True) if self.facts.renormalize else chosen)
        ids.copy_(order.indices[:, : self.facts.top_k])


@dataclass(frozen=True, slots=True)
class Case:
    facts: Facts
    tokens: int

    def __str__(self) -> str:
        f = self.facts
        return f"{self.tokens}-{f.top_k}of{f.num_experts}{'-renormalized' if f.renormalize else ''}"

    def logits(self) -> torch.Tensor:
        """[tokens, num_experts] float32; the first token has ties, the second is extreme."""
        logits = torch.randn(self.tokens, self.facts.num_experts, generator=torch.Generator().manual_seed(1)) * 2
        logits[:1] = logits[:1].round()
        logits[1:2] *= 1000
        return logits


def cases() -> Iterator[Case]:
    for num_experts, top_k in ((8, 2), (4, 4), (1, 1), (60, 4), (128, 8), (257, 6)):
        for renormalize in (True, False):
            yield Case(Facts(num_experts=num_experts, top_k=top_k, renormalize=renormalize), 37)
    yield Case(Facts(num_experts=8, top_k=2), 0)
