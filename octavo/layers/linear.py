"""Linear layers: one product, or several with the same input run as one."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from octavo.layers.choices import Choices
from octavo.layers.stored import Layer, Stored
from octavo.layers.weight import Piece, Weight, joined
from octavo.ops.linear import Facts
from octavo.ops.weights import Dense, Layout, Tensors
from octavo.parallel.cut import ONE, Cut, Group, even, shared
from octavo.quant.format import Format, Role, Scheme


@dataclass(frozen=True, slots=True)
class Part:
    """Outputs `name` of a fused layer: `size` of them, which may be cut between `count` things called `what`.

    is_shared: where there are fewer things than ranks, several ranks hold the same one.
    """

    name: str
    size: int
    count: int
    what: str
    is_shared: bool = False


class FusedLinear(Layer):
    """Products of one input with several weights, which lie one behind the other in memory and apart on disk.

    The disk knows the parts under their own names beside this layer's. Each rank holds its run of every part.
    """

    def __init__(self, in_size: int, *, parts: tuple[Part, ...], bias: bool = False) -> None:
        super().__init__()
        self.in_size = in_size
        self.parts = parts
        self.has_bias = bias
        self.shard(ONE)

    def shard(self, group: Group) -> None:
        self._cuts = [_unit_cut(part, group) for part in self.parts]
        self._sizes = [part.size if piece is None else piece.length for part, piece in zip(self.parts, self._cuts)]
        self.out_size = sum(self._sizes)

    def create(self, scheme: Scheme, device: torch.device, path: str) -> None:
        parent = path.rpartition(".")[0]
        names = [f"{parent}.{part.name}" if parent else part.name for part in self.parts]
        pieces = [Piece(name, part.size, self.in_size, cut) for name, part, cut in zip(names, self.parts, self._cuts)]
        self.products = SideBySide(scheme, [scheme.weight(name, "linear") for name in names], pieces, self.has_bias, device)

    def stored(self, path: str) -> Iterator[Stored]:
        yield from self.products.stored()

    def finish(self, choices: Choices) -> None:
        self.products.finish(choices)

    def forward(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """out [tokens, out_size] = x [tokens, in_size] times each part's weight, the parts side by side."""
        self.products.forward(out, x)


class Linear(Layer):
    """One product. Its input may be cut between `num_cuttable` things called `cut_inputs`: each rank then has a summand of the output, and
    the first has the bias. out_dtype: None = that of the weights.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        bias: bool = False,
        cut_inputs: str | None = None,
        num_cuttable: int = 0,
        out_dtype: torch.dtype | None = None,
        role: Role = "linear",
    ) -> None:
        super().__init__()
        self.role = role
        self.whole_in_size = in_size
        self.out_size = out_size
        self.has_bias = bias
        self.out_dtype = out_dtype
        self._input = None if cut_inputs is None else Part("", in_size, num_cuttable, cut_inputs)
        self.shard(ONE)

    def shard(self, group: Group) -> None:
        piece = None if self._input is None else _unit_cut(self._input, group)
        self._cut = None if piece is None else Cut(1, piece.start, piece.length)
        self.in_size = self.whole_in_size if piece is None else piece.length
        self._holds_bias = self.has_bias and (piece is None or group.rank == 0)

    def create(self, scheme: Scheme, device: torch.device, path: str) -> None:
        piece = Piece(path, self.out_size, self.whole_in_size, self._cut)
        self.product = Product(scheme, scheme.weight(path, self.role), [piece], self._holds_bias, device, self.out_dtype)

    def stored(self, path: str) -> Iterator[Stored]:
        yield from self.product.stored()

    def finish(self, choices: Choices) -> None:
        self.product.finish(choices)

    def forward(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """out [tokens, out_size] = x [tokens, in_size] times the weight."""
        self.product.forward(out, x)


class Product(nn.Module):
    """A weight of one format with its bias, and the implementation that multiplies with it."""

    def __init__(
        self,
        scheme: Scheme,
        format: Format,
        pieces: Sequence[Piece],
        has_bias: bool,
        device: torch.device,
        out_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = Weight(format, pieces, device)
        self.bias = scheme.vector(self.weight.num_rows, device) if has_bias else None
        self.dtype = scheme.dtype
        self.out_dtype = out_dtype

    def stored(self) -> Iterator[Stored]:
        yield from self.weight.stored()
        start = 0
        for piece, rows in zip(self.weight.pieces, self.weight.rows):
            if self.bias is not None:
                cut = piece.cut if piece.cut is None or piece.cut.axis == 0 else None
                yield Stored(f"{piece.path}.bias", (piece.rows,), self.bias[start : start + rows], cut)
            start += rows

    def finish(self, choices: Choices) -> None:
        value = self.weight.finish(lambda layout, weight: self._choose(choices, layout, weight))
        self._operands = (value, self.bias)  # in a tuple: the module has them as parameters already

    def _choose(self, choices: Choices, layout: Layout, weight: torch.Tensor | Tensors) -> torch.Tensor | Tensors:
        facts = Facts(
            in_features=self.weight.columns,
            out_features=self.weight.num_rows,
            dtype=self.dtype,
            out_dtype=self.out_dtype,
            has_bias=self.bias is not None,
            layout=None if isinstance(layout, Dense) else layout,
            activation=self.weight.activation,
        )
        self._implementation = choices.take("linear", facts)
        packed: torch.Tensor | Tensors = self._implementation.pack(weight, facts)
        return packed

    def forward(self, out: torch.Tensor, x: torch.Tensor) -> None:
        self._implementation(out, x, *self._operands)


class SideBySide(nn.Module):
    """Products of one input, as few as the formats of their weights allow."""

    def __init__(self, scheme: Scheme, formats: Sequence[Format], pieces: Sequence[Piece], has_bias: bool, device: torch.device) -> None:
        super().__init__()
        runs = joined(formats, pieces)
        self.each = nn.ModuleList(Product(scheme, format, run, has_bias, device) for format, run in runs)
        ends = list(itertools.accumulate(sum(piece.shape[0] for piece in run) for _, run in runs))
        products = [product for product in self.each if isinstance(product, Product)]
        self._in_order = tuple(zip([0, *ends], ends, products))  # columns from, to, and whose they are

    def stored(self) -> Iterator[Stored]:
        for _, _, product in self._in_order:
            yield from product.stored()

    def finish(self, choices: Choices) -> None:
        for _, _, product in self._in_order:
            product.finish(choices)

    def forward(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """out [tokens, all columns], x [tokens, depth]."""
        if len(self._in_order) == 1:
            self._in_order[0][2].forward(out, x)
            return
        for start, end, product in self._in_order:
            product.forward(out[:, start:end], x)


def _unit_cut(part: Part, group: Group) -> Cut | None:
    """The cut of a part between whole things, in single outputs."""
    if group.size == 1:
        return None
    each = part.size // part.count
    if part.is_shared:
        first, number = shared(part.count, group, part.what)
        return Cut(0, first * each, number * each)
    number = even(part.count, group, part.what)
    return Cut(0, group.rank * number * each, number * each)
