"""Processor: one rule that changes a row's logits before a token is drawn. An object belongs to one row and holds all that it remembers."""

from typing import Protocol, Self

import torch

from octavo.protocol.step import NewRow


class Processor(Protocol):
    @classmethod
    def of(cls, new: NewRow, vocab_size: int) -> Self | None:
        """The processor for a row, with the tokens it has so far; None if its parameters ask for nothing of this kind."""

    def apply(self, logits: torch.Tensor, position: int) -> None:
        """Change logits [vocab_size] float32 in place; `position` is the place of the token to be drawn, the row's first token being 0."""

    def note(self, token: int) -> None:
        """This token was drawn."""
