"""Finish: implementations are chosen, weights get the layout that they want, and what stays is moved to one run of memory."""

from collections.abc import Iterator

import torch
from torch import nn

from octavo.layers.choices import Choices
from octavo.layers.stored import Layer

ALIGNMENT = 64


def finish(module: nn.Module, choices: Choices) -> None:
    """Finish every layer of a model, or of a piece of one, whose weights have been filled (or are on the meta device)."""
    for layer in module.modules():
        if isinstance(layer, Layer):
            layer.finish(choices)


def resident_bytes(model: nn.Module) -> int:
    """What the weights of a finished model take, in the layout that they are kept in; exact on meta tensors too."""
    return sum(aligned(tensor.numel() * tensor.dtype.itemsize) for tensor in resident(model))


def resident(module: nn.Module) -> Iterator[torch.Tensor]:
    """The weights and tables of a module, each once."""
    seen: set[int] = set()
    for tensor in (*module.parameters(), *module.buffers()):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor


def aligned(size_bytes: int) -> int:
    return (size_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


class Residence:
    """One run of memory for all that a model keeps. Many small allocations on huge pages would each waste half a page."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer
        self.taken_bytes = 0

    def move_in(self, module: nn.Module) -> None:
        """Move the weights and tables of a finished piece of a model here."""
        for tensor in resident(module):
            size = tensor.numel() * tensor.dtype.itemsize
            place = self._buffer[self.taken_bytes : self.taken_bytes + size].view(tensor.dtype).view(tensor.shape)
            place.copy_(tensor.data)
            tensor.data = place
            self.taken_bytes += aligned(size)
