"""Unquantized: weights are stored in the model's own number format, as they are on disk."""

import torch
from torch import nn


class Scheme:
    """Creates the stored parameters of a layer. Every scheme has these methods; this one needs no scales beside the weights."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def matrix(self, rows: int, columns: int, device: torch.device) -> nn.Parameter:
        """Weights [rows, columns] of a product with an input of `columns`."""
        return self._parameter((rows, columns), device)

    def matrices(self, count: int, rows: int, columns: int, device: torch.device) -> nn.Parameter:
        """`count` matrices of one shape, one behind the other: the experts of a mixture."""
        return self._parameter((count, rows, columns), device)

    def vector(self, size: int, device: torch.device) -> nn.Parameter:
        """A norm's weight or a bias."""
        return self._parameter((size,), device)

    def _parameter(self, shape: tuple[int, ...], device: torch.device) -> nn.Parameter:
        return nn.Parameter(torch.empty(shape, dtype=self.dtype, device=device), requires_grad=False)
