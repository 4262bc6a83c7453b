"""The experts of a mixture: down(act(gate x) * up x) of each expert a token chose, added up with its weights in its order of choice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """intermediate: the width of gate, of up and of what goes down."""

    num_experts: int
    top_k: int
    hidden: int
    intermediate: int
    dtype: torch.dtype
    activation: Literal["silu"] = "silu"


class Reference:
    """out, x [tokens, hidden] of dtype, out may be x; ids int32 and weights float32 [tokens, top_k]; gate_up and down as `pack` made them.

    The weights are gate_up [experts, 2 * intermediate, hidden] (gate above up) and down [experts, hidden, intermediate]; each is packed by
    itself. scratch: uint8 [scratch_size(facts, tokens)]. An id outside 0 .. num_experts - 1 gives the nearest expert.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    @staticmethod
    def pack(weight: torch.Tensor, facts: Facts) -> torch.Tensor:
        return weight

    @staticmethod
    def scratch_size(facts: Facts, num_tokens: int) -> int:
        """None of the scratch is used; torch allocates on the way."""
        return 0

    def __call__(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        scratch: torch.Tensor,
    ) -> None:
        facts = self.facts
        chosen = ids.clamp(0, facts.num_experts - 1)
        results = torch.empty(*ids.shape, facts.hidden, dtype=facts.dtype)
        for expert in sorted(set(chosen.flatten().tolist())):
            tokens, places = torch.nonzero(chosen == expert, as_tuple=True)
            both = functional.linear(x[tokens], gate_up[expert])
            gate, up = both[:, : facts.intermediate], both[:, facts.intermediate :]
            results[tokens, places] = functional.linear(functional.silu(gate) * up, down[expert])
        total = torch.zeros(x.shape[0], facts.hidden)
        for place in range(facts.top_k):
            total += results[:, place].float() * weights[:, place, None]
        out.copy_(total)


@dataclass(frozen=True, slots=True)
class Case:
    facts: Facts
    tokens: int

    def __str__(self) -> str:
        f = self.facts
        return f"{self.tokens}-{f.top_k}of{f.num_experts}x{f.hidden}x{f.intermediate}-{str(f.dtype)[6:]}"

    def x(self) -> torch.Tensor:
        return _normal((self.tokens, self.facts.hidden), 1).to(self.facts.dtype)

    def gate_up(self) -> torch.Tensor:
        f = self.facts
        return _normal((f.num_experts, 2 * f.intermediate, f.hidden), 2).mul(f.hidden**-0.5).to(f.dtype)

    def down(self) -> torch.Tensor:
        f = self.facts
        return _normal((f.num_experts, f.hidden, f.intermediate), 3).mul(f.intermediate**-0.5).to(f.dtype)

    def ids(self) -> torch.Tensor:
        """Distinct experts a token; the lowest is favoured and the highest never chosen, where there is a choice."""
        f = self.facts
        usable = max(f.num_experts - 1, f.top_k)
        score = torch.rand(self.tokens, usable, generator=torch.Generator().manual_seed(4))
        score[:, 0] += 0.5
        return score.topk(f.top_k, -1).indices.to(torch.int32)

    def weights(self) -> torch.Tensor:
        return torch.softmax(_normal((self.tokens, self.facts.top_k), 5), -1)


def _normal(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def cases() -> Iterator[Case]:
    """One token and many, widths that fill no panel, an expert without tokens, one expert for all."""
    for dtype in (torch.float32, torch.bfloat16):
        for tokens in (1, 2, 19, 150):
            yield Case(Facts(num_experts=4, top_k=2, hidden=64, intermediate=96, dtype=dtype), tokens)
        yield Case(Facts(num_experts=7, top_k=3, hidden=37, intermediate=51, dtype=dtype), 23)
        yield Case(Facts(num_experts=1, top_k=1, hidden=16, intermediate=5, dtype=dtype), 9)
        yield Case(Facts(num_experts=3, top_k=3, hidden=20, intermediate=130, dtype=dtype), 1100)
        yield Case(Facts(num_experts=4, top_k=2, hidden=32, intermediate=32, dtype=dtype), 0)
    yield Case(Facts(num_experts=4, top_k=2, hidden=32, intermediate=32, dtype=torch.float16), 5)
