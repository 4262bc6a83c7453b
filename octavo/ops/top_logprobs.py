"""Top logprobs: the log-probabilities of a row's likeliest tokens and of given ones, with the rank of the token that stands there.

Each row is computed alone and its normaliser in float64, so that it is the same in any batch. Equal values are ordered by token id.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Facts:
    vocab_size: int


class Reference:
    """__call__(values, ids, ranks, logits, tokens, num_top, listed, normalise).

    values float32 [n, 1 + num_top + listed], ids int32 of the same shape and ranks int32 [n] are written: first tokens[i] itself, then the
    num_top largest, then the `listed` ids. logits float32 [n, vocab_size]; tokens int32 [n]. ranks: 1 + how many logits are larger.
    normalise False gives the logits themselves.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    def __call__(
        self,
        values: torch.Tensor,
        ids: torch.Tensor,
        ranks: torch.Tensor,
        logits: torch.Tensor,
        tokens: torch.Tensor,
        num_top: int,
        listed: list[int],
        normalise: bool = True,
    ) -> None:
        extra = torch.tensor(listed, dtype=torch.int64)
        for index, row in enumerate(logits):
            chosen = torch.cat([tokens[index : index + 1].to(torch.int64), largest(row, num_top), extra])
            picked = row[chosen].to(torch.float64)
            values[index] = picked - torch.logsumexp(row.to(torch.float64), 0) if normalise else picked
            ids[index] = chosen
            ranks[index] = 1 + (row > row[chosen[0]]).sum()


def largest(row: torch.Tensor, count: int) -> torch.Tensor:
    """int64 ids of the `count` largest values, the largest first, equals by id."""
    if count == 0:
        return torch.empty(0, dtype=torch.int64)
    if count >= len(row):
        return torch.sort(row, descending=True, stable=True).indices
    border = row.topk(count).values[-1]
    candidates = (row >= border).nonzero()[:, 0]
    return candidates[torch.sort(row[candidates], descending=True, stable=True).indices[:count]]


@dataclass(frozen=True, slots=True)
class Case:
    vocab_size: int
    num_rows: int
    num_top: int
    listed: tuple[int, ...] = ()
    normalise: bool = True

    def __str__(self) -> str:
        return f"{self.num_rows}x{self.vocab_size}-top{self.num_top}-listed{len(self.listed)}-{'log' if self.normalise else 'raw'}"

    def logits(self) -> torch.Tensor:
        return (torch.randn(self.num_rows, self.vocab_size, generator=torch.Generator().manual_seed(7)) * 3).round(decimals=1)

    def tokens(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(8)
        return torch.randint(self.vocab_size, (self.num_rows,), generator=generator, dtype=torch.int32)


def cases() -> Iterator[Case]:
    """None, some and all of the vocabulary; listed ids; logits as they are."""
    yield Case(1, 2, 1, (0, 0))
    yield Case(17, 3, 0)
    yield Case(17, 3, 17)
    yield Case(49152, 4, 20, (5, 49151))
    yield Case(49152, 2, 5, normalise=False)
    yield Case(1000, 2, 1000)
