"""Experts: the feed-forwards of a mixture, each with a gate, an up and a down projection; plain ones in one run of memory, others apart."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from octavo.device.arena import Arena
from octavo.layers.choices import Choices
from octavo.layers.linear import Product, SideBySide
from octavo.layers.stored import Stored
from octavo.layers.weight import Piece
from octavo.ops.gated_activation import Facts as ActivationFacts
from octavo.ops.moe_experts import Facts
from octavo.parallel.cut import Cut
from octavo.quant.format import Format, Scheme
from octavo.quant.schemes.unquantized import Format as Plain

_CHUNK = 1024  # tokens taken at once, which bounds the scratch


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the experts of one layer that this rank holds. names: gate, up and down as the disk calls them. cut: of the intermediate channels,
    None: all.
    """

    path: str
    names: tuple[str, str, str]
    held: range
    num_chosen: int
    hidden_size: int
    intermediate_size: int
    cut: Cut | None

    @property
    def count(self) -> int:
        return len(self.held)

    @property
    def local_size(self) -> int:
        """Intermediate channels of this rank."""
        return self.intermediate_size if self.cut is None else self.cut.length

    def pieces(self, number: int) -> tuple[Piece, Piece, Piece]:
        """Gate, up and down of one expert."""
        gate, up, down = (f"{self.path}.experts.{number}.{name}" for name in self.names)
        columns = None if self.cut is None else Cut(1, self.cut.start, self.cut.length)
        size, hidden = self.intermediate_size, self.hidden_size
        return Piece(gate, size, hidden, self.cut), Piece(up, size, hidden, self.cut), Piece(down, hidden, size, columns)


def make(scheme: Scheme, shape: Shape, device: torch.device) -> "PlainExperts | CodedExperts":
    """The experts of a layer, with their stored parameters, uninitialized."""
    formats = [[scheme.weight(piece.path, "expert") for piece in shape.pieces(number)] for number in shape.held]
    if all(isinstance(format, Plain) for each in formats for format in each):
        return PlainExperts(scheme.dtype, shape, device)
    return CodedExperts(scheme, shape, formats, device)


class PlainExperts(nn.Module):
    """All experts' plain numbers in two runs, for one kernel."""

    def __init__(self, dtype: torch.dtype, shape: Shape, device: torch.device) -> None:
        super().__init__()
        self.shape = shape
        size = shape.local_size
        sizes = ((shape.count, 2 * size, shape.hidden_size), (shape.count, shape.hidden_size, size))
        self.gate_up, self.down = (nn.Parameter(torch.empty(s, dtype=dtype, device=device), requires_grad=False) for s in sizes)

    def stored(self) -> Iterator[Stored]:
        size = self.shape.local_size
        for place, number in enumerate(self.shape.held):
            targets = (self.gate_up[place, :size], self.gate_up[place, size:], self.down[place])
            for piece, target in zip(self.shape.pieces(number), targets, strict=True):
                yield Stored(f"{piece.path}.weight", (piece.rows, piece.columns), target, piece.cut)

    def finish(self, choices: Choices) -> None:
        shape = self.shape
        self._facts = Facts(
            num_experts=shape.count,
            top_k=shape.num_chosen,
            hidden=shape.hidden_size,
            intermediate=shape.local_size,
            dtype=self.gate_up.dtype,
        )
        self._experts = choices.take("moe_experts", self._facts)
        self.gate_up.data = self._experts.pack(self.gate_up.data, self._facts)
        self.down.data = self._experts.pack(self.down.data, self._facts)

    def forward(self, out: torch.Tensor, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, arena: Arena) -> None:
        """out, x [tokens, hidden], out may be x; experts int32 and weights float32 [tokens, num_chosen]."""
        scratch = arena.empty(self._experts.scratch_size(self._facts, x.shape[0]), dtype=torch.uint8)
        self._experts(out, x, experts, weights, self.gate_up, self.down, scratch)


class CodedExperts(nn.Module):
    """Each expert's weights in their own formats; tokens are gathered by expert, so that its weights are decoded once for all of them.

    A token's result is the same bits in any company: products keep rows apart, and its experts are added up in its own order of choice.
    """

    def __init__(self, scheme: Scheme, shape: Shape, formats: list[list[Format]], device: torch.device) -> None:
        super().__init__()
        self.shape = shape
        self._in_order: list[tuple[SideBySide, Product]] = []
        for place, number in enumerate(shape.held):
            gate, up, down = shape.pieces(number)
            inputs = SideBySide(scheme, formats[place][:2], (gate, up), False, device)
            output = Product(scheme, formats[place][2], (down,), False, device, torch.float32)
            self._in_order.append((inputs, output))
        self.each = nn.ModuleList(module for pair in self._in_order for module in pair)

    def stored(self) -> Iterator[Stored]:
        for inputs, output in self._in_order:
            yield from inputs.stored()
            yield from output.stored()

    def finish(self, choices: Choices) -> None:
        size = self.shape.local_size
        self._activate = choices.take("gated_activation", ActivationFacts(kind="silu", width=size, dtype=choices.dtype))
        for inputs, output in self._in_order:
            inputs.finish(choices)
            output.finish(choices)

    def forward(self, out: torch.Tensor, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, arena: Arena) -> None:
        """See PlainExperts."""
        for start in range(0, x.shape[0], _CHUNK):
            part = slice(start, start + _CHUNK)
            with arena.scope():
                self._chunk(out[part], x[part], experts[part], weights[part], arena)

    def _chunk(self, out: torch.Tensor, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, arena: Arena) -> None:
        shape, top_k = self.shape, experts.shape[1]
        pairs = x.shape[0] * top_k
        gathered = arena.empty(pairs, shape.hidden_size, dtype=x.dtype)
        gate_up = arena.empty(pairs, 2 * shape.local_size, dtype=x.dtype)
        gated = arena.empty(pairs, shape.local_size, dtype=x.dtype)
        results = arena.empty(pairs, shape.hidden_size, dtype=torch.float32)
        placed = arena.empty(pairs, shape.hidden_size, dtype=torch.float32)
        if x.is_meta:
            return
        chosen = experts.flatten().clamp(0, shape.count - 1)
        order = torch.argsort(chosen, stable=True)
        torch.index_select(x, 0, order // top_k, out=gathered)
        counts = torch.bincount(chosen, minlength=shape.count).tolist()
        begin = 0
        for (inputs, output), count in zip(self._in_order, counts, strict=True):
            if count:
                rows = slice(begin, begin + count)
                inputs.forward(gate_up[rows], gathered[rows])
                self._activate(gated[rows], gate_up[rows])
                output.forward(results[rows], gated[rows])
                begin += count
        placed[order] = results
        total = torch.zeros(x.shape[0], shape.hidden_size)
        by_choice = placed.view(-1, top_k, shape.hidden_size)
        for choice in range(top_k):
            total += by_choice[:, choice] * weights[:, choice, None]
        out.copy_(total)
