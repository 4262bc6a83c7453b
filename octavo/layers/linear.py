"""Linear layers: one product, or several with the same input run as one."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from octavo.layers.choices import Choices
from octavo.layers.stored import Layer, Stored
from octavo.ops.linear import Facts
from octavo.parallel.cut import ONE, Cut, Group, cut
from octavo.quant.unquantized import Scheme


@dataclass(frozen=True, slots=True)
class Part:
    """Outputs `name` of a fused layer: `size` of them, which may be cut between `count` things called `what`."""

    name: str
    size: int
    count: int
    what: str


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

    def create(self, scheme: Scheme, device: torch.device) -> None:
        self.weight = scheme.matrix(self.out_size, self.in_size, device)
        self.bias = scheme.vector(self.out_size, device) if self.has_bias else None

    def stored(self, path: str) -> Iterator[Stored]:
        parent = path.rpartition(".")[0]
        start = 0
        for part, piece, size in zip(self.parts, self._cuts, self._sizes):
            name = f"{parent}.{part.name}" if parent else part.name
            yield Stored(f"{name}.weight", (part.size, self.in_size), self.weight[start : start + size], piece)
            if self.bias is not None:
                yield Stored(f"{name}.bias", (part.size,), self.bias[start : start + size], piece)
            start += size

    def finish(self, choices: Choices) -> None:
        facts = Facts(in_features=self.in_size, out_features=self.out_size, dtype=self.weight.dtype, has_bias=self.has_bias)
        self._product = choices.take("linear", facts)
        self.weight.data = self._product.pack(self.weight.data, facts)

    def forward(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """out [tokens, out_size] = x [tokens, in_size] times each part's weight, the parts side by side."""
        self._product(out, x, self.weight, self.bias)


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
    ) -> None:
        super().__init__()
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

    def create(self, scheme: Scheme, device: torch.device) -> None:
        self.weight = scheme.matrix(self.out_size, self.in_size, device)
        self.bias = scheme.vector(self.out_size, device) if self._holds_bias else None

    def stored(self, path: str) -> Iterator[Stored]:
        yield Stored(f"{path}.weight", (self.out_size, self.whole_in_size), self.weight, self._cut)
        if self.bias is not None:
            yield Stored(f"{path}.bias", (self.out_size,), self.bias)

    def finish(self, choices: Choices) -> None:
        facts = Facts(
            in_features=self.in_size,
            out_features=self.out_size,
            dtype=self.weight.dtype,
            out_dtype=self.out_dtype,
            has_bias=self._holds_bias,
        )
        self._product = choices.take("linear", facts)
        self.weight.data = self._product.pack(self.weight.data, facts)

    def forward(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """out [tokens, out_size] = x [tokens, in_size] times the weight."""
        self._product(out, x, self.weight, self.bias)


def _unit_cut(part: Part, group: Group) -> Cut | None:
    """The cut of a part between whole things, in single outputs."""
    piece = cut(0, part.count, group, part.what)
    if piece is None:
        return None
    each = part.size // part.count
    return Cut(0, piece.start * each, piece.length * each)
