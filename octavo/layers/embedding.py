"""Embedding and head: token ids to hidden states, and hidden states to logits; one table for both where they are tied."""

from collections.abc import Iterator
from typing import Any

import torch

from octavo.layers.choices import Choices
from octavo.layers.stored import Layer, Stored
from octavo.layers.weight import Piece, Weight
from octavo.ops.embedding import CodedPanels, Facts
from octavo.ops.linear import Facts as LinearFacts
from octavo.ops.weights import Dense, Layout
from octavo.parallel.cut import ONE, Cut, Group, run
from octavo.quant.format import Role, Scheme


class Table(Layer):
    """Numbers [num_tokens, size]: a row for each token of the vocabulary. Each rank holds a run of the tokens."""

    role: Role
    _table: tuple[Any]  # in a tuple: the module has it as parameters already

    def __init__(self, num_tokens: int, size: int) -> None:
        super().__init__()
        self.whole_num_tokens = num_tokens
        self.size = size
        self.shard(ONE)

    def shard(self, group: Group) -> None:
        self.first_token, self.num_tokens = run(self.whole_num_tokens, group.rank, group.size)

    def create(self, scheme: Scheme, device: torch.device, path: str) -> None:
        self.dtype = scheme.dtype
        self.weight = Weight(scheme.weight(path, self.role), [Piece(path, self.whole_num_tokens, self.size, self._cut)], device)

    @property
    def _cut(self) -> Cut | None:
        return None if self.num_tokens == self.whole_num_tokens else Cut(0, self.first_token, self.num_tokens)

    def stored(self, path: str) -> Iterator[Stored]:
        yield from self.weight.stored()

    def _pack_for_product(self, choices: Choices, layout: Layout, weight: Any) -> Any:
        """Choose the product that makes logits; the weight in its order."""
        facts = LinearFacts(
            in_features=self.size,
            out_features=self.num_tokens,
            dtype=self.dtype,
            out_dtype=torch.float32,
            layout=None if isinstance(layout, Dense) else layout,
            activation=self.weight.activation,
        )
        self._product = choices.take("linear", facts)
        return self._product.pack(weight, facts)

    def _multiply(self, out: torch.Tensor, hidden: torch.Tensor) -> None:
        self._product(out, hidden, self._table[0])


class Embedding(Table):
    """is_head: the table is the output head's weight too. scale: factor on the hidden states."""

    role = "embedding"

    def __init__(self, num_tokens: int, size: int, is_head: bool, scale: float = 1.0) -> None:
        super().__init__(num_tokens, size)
        self.is_head = is_head
        self.scale = scale

    def finish(self, choices: Choices) -> None:
        self._table = (self.weight.finish(lambda layout, weight: self._pack(choices, layout, weight)),)

    def _pack(self, choices: Choices, layout: Layout, weight: Any) -> Any:
        """The head's layout decides where there is one: its product reads the whole table in a step, the gather a few rows."""
        packed = self._pack_for_product(choices, layout, weight) if self.is_head else weight
        if isinstance(layout, Dense):
            form: Any = "panels" if packed.dim() > 2 else "rows"
        else:
            form = CodedPanels(layout) if self.is_head and getattr(self._product, "packs_panels", False) else layout
        facts = Facts(rows=self.num_tokens, width=self.size, dtype=self.dtype, scale=self.scale, layout=form)
        self._gather = choices.take("embedding", facts)
        return packed if self.is_head else self._gather.pack(packed, facts)

    def forward(self, out: torch.Tensor, tokens: torch.Tensor) -> None:
        """out [tokens, size] = the rows of tokens, int32 [tokens]."""
        self._gather(out, tokens, self._table[0])

    def head(self, out: torch.Tensor, hidden: torch.Tensor) -> None:
        """out float32 [n, num_tokens] = the products of hidden [n, size] with every row. Only where is_head."""
        self._multiply(out, hidden)


class Head(Table):
    """The output head of a model whose embedding is another table."""

    role = "head"

    def finish(self, choices: Choices) -> None:
        self._table = (self.weight.finish(lambda layout, weight: self._pack_for_product(choices, layout, weight)),)

    def forward(self, out: torch.Tensor, hidden: torch.Tensor) -> None:
        """out float32 [n, num_tokens], hidden [n, size]."""
        self._multiply(out, hidden)
