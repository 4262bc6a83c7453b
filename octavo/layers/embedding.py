"""Embedding and head: token ids to hidden states, and hidden states to logits; one table for both where they are tied."""

from collections.abc import Iterator
from typing import Any, Literal

import torch

from octavo.layers.choices import Choices
from octavo.layers.stored import Layer, Stored
from octavo.ops.embedding import Facts
from octavo.ops.linear import Facts as LinearFacts
from octavo.quant.unquantized import Scheme


class Embedding(Layer):
    """is_head: the table is the output head's weight too. scale: factor on the hidden states. Every rank holds the whole table."""

    def __init__(self, num_tokens: int, size: int, is_head: bool, scale: float = 1.0) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        self.size = size
        self.is_head = is_head
        self.scale = scale

    def create(self, scheme: Scheme, device: torch.device) -> None:
        self.weight = scheme.matrix(self.num_tokens, self.size, device)
        self.dtype = self.weight.dtype

    def stored(self, path: str) -> Iterator[Stored]:
        yield Stored(f"{path}.weight", (self.num_tokens, self.size), self.weight)

    def finish(self, choices: Choices) -> None:
        facts = Facts(rows=self.num_tokens, width=self.size, dtype=self.dtype, scale=self.scale)
        if self.is_head:
            self._product, self.weight.data = _head(choices, self.weight.data)
            # the head's layout decides: its product reads the whole table in a step, the gather a few rows
            layout: Literal["rows", "panels"] = "rows" if self.weight.dim() == 2 else "panels"
            facts = Facts(rows=self.num_tokens, width=self.size, dtype=self.dtype, scale=self.scale, layout=layout)
            self._gather = choices.take("embedding", facts)
            return
        self._gather = choices.take("embedding", facts)
        self.weight.data = self._gather.pack(self.weight.data, facts)

    def forward(self, out: torch.Tensor, tokens: torch.Tensor) -> None:
        """out [tokens, size] = the rows of tokens, int32 [tokens]."""
        self._gather(out, tokens, self.weight)

    def head(self, out: torch.Tensor, hidden: torch.Tensor) -> None:
        """out float32 [n, num_tokens] = the products of hidden [n, size] with every row. Only where is_head."""
        self._product(out, hidden, self.weight)


class Head(Layer):
    """The output head of a model whose embedding is another table. Every rank holds the whole of it."""

    def __init__(self, num_tokens: int, size: int) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        self.size = size

    def create(self, scheme: Scheme, device: torch.device) -> None:
        self.weight = scheme.matrix(self.num_tokens, self.size, device)

    def stored(self, path: str) -> Iterator[Stored]:
        yield Stored(f"{path}.weight", (self.num_tokens, self.size), self.weight)

    def finish(self, choices: Choices) -> None:
        self._product, self.weight.data = _head(choices, self.weight.data)

    def forward(self, out: torch.Tensor, hidden: torch.Tensor) -> None:
        """out float32 [n, num_tokens], hidden [n, size]."""
        self._product(out, hidden, self.weight)


def _head(choices: Choices, weight: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """The product that makes logits, and the weight in its layout."""
    facts = LinearFacts(in_features=weight.shape[1], out_features=weight.shape[0], dtype=weight.dtype, out_dtype=torch.float32)
    product = choices.take("linear", facts)
    return product, product.pack(weight, facts)
