"""Gated activation: act(gate) * up, where gate and up lie side by side in one row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["silu", "gelu_tanh", "gelu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """silu: g * sigmoid(g). gelu: g * Phi(g), exact. gelu_tanh: its tanh form (Hendrycks and Gimpel, 2016)."""

    kind: Kind
    width: int  # of gate, of up and of the result
    dtype: torch.dtype


def activate(gate: torch.Tensor, kind: Kind) -> torch.Tensor:
    """act(gate), computed in float32, in float32."""
    wide = gate.to(torch.float32)
    if kind == "silu":
        return torch.nn.functional.silu(wide)
    return torch.nn.functional.gelu(wide, approximate="tanh" if kind == "gelu_tanh" else "none")


class Reference:
    """out [tokens, width] = act(gate_up[:, :width]), rounded to the dtype, times gate_up[:, width:]; gate_up [tokens, 2 * width]."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    def __call__(self, out: torch.Tensor, gate_up: torch.Tensor) -> None:
        gate, up = torch.split(gate_up, self.facts.width, dim=-1)
        out.copy_(activate(gate, self.facts.kind).to(out.dtype) * up)


@dataclass(frozen=True, slots=True)
class Case:
    facts: Facts
    tokens: int
    scale: float = 2.0

    def __str__(self) -> str:
        return f"{self.facts.kind}-{self.tokens}x{self.facts.width}-{str(self.facts.dtype)[6:]}-scale{self.scale:g}"

    def gate_up(self) -> torch.Tensor:
        """Mostly of magnitude `scale`, with the extremes of exp among them."""
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(self.tokens, 2 * self.facts.width, generator=generator) * self.scale
        extremes = torch.tensor([0.0, -0.0, 88.0, -88.0, 100.0, -100.0, 1e-30, -1e-30])[: self.facts.width]
        x[0, : len(extremes)] = extremes
        x[0, self.facts.width : self.facts.width + len(extremes)] = 0.5
        return x.to(self.facts.dtype)


def cases() -> Iterator[Case]:
    """Each kind in each dtype, at widths of real models and at awkward ones."""
    for dtype in (torch.float32, torch.bfloat16):
        for kind in ("silu", "gelu_tanh", "gelu"):
            yield Case(Facts(kind=kind, width=1536, dtype=dtype), 3)
            yield Case(Facts(kind=kind, width=19, dtype=dtype), 2, 0.1)
            yield Case(Facts(kind=kind, width=1, dtype=dtype), 1)
        yield Case(Facts(kind="silu", width=96, dtype=dtype), 70)
    yield Case(Facts(kind="silu", width=48, dtype=torch.float16), 2)
