"""Stored parameters: what a model wants from a checkpoint, tensor by tensor, each under one path and with one place to go.

A path is the attribute path with the part's name in place of the fused layer's (`model.layers.3.self_attn.q_proj.weight`), and with the
expert's number before it in a mixture (`model.layers.3.mlp.experts.5.gate_proj.weight`). Where the disk has other names, the model's
`names` say so; nothing here knows them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from octavo.layers.choices import Choices
from octavo.parallel.cut import Cut, Group
from octavo.quant.format import Scheme


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of the checkpoint and where this rank's piece of it goes.

    shape: of the whole tensor, before the cut. target: a view into the layer's own memory, exactly as large as this rank's piece:
    `target.copy_(piece)` is all that filling has to do. cut: which piece; None: the whole. number_format: what the tensor must be on disk,
    to be taken as it is; shapes are then of its entries, of bytes for GGUF's blocks. None: any plain floating-point format. default: the
    value where the checkpoint need not have the tensor. is_flat: on disk it is one run of the entries, whatever its shape there.
    """

    path: str
    shape: tuple[int, ...]
    target: torch.Tensor
    cut: Cut | None = None
    number_format: str | None = None
    default: float | None = None
    is_flat: bool = False

    def __post_init__(self) -> None:
        wanted = self.shape if self.cut is None else self.cut.shape(self.shape)
        if tuple(self.target.shape) != wanted:
            raise ValueError(f"{self.path}: the place has shape {tuple(self.target.shape)}, the piece {wanted}")


class Layer(nn.Module):
    """A module with a part in the passes of building. Its mathematics is in forward; these say the rest, and each is walked by one pass.

    The passes come in this order; create comes twice, first on the meta device. A layer without weights leaves out what it does not need.
    """

    def shard(self, group: Group) -> None:
        """Record which piece of the layer is this rank's. Raises ConfigError if it cannot be cut so."""

    def create(self, scheme: Scheme, device: torch.device, path: str) -> None:
        """Make the stored parameters of the layer that is called `path` in the model, uninitialized."""

    def stored(self, path: str) -> Iterator[Stored]:
        """What this layer reads, when it is called `path` in the model."""
        return iter(())

    def finish(self, choices: Choices) -> None:
        """Choose implementations and give weights the layout that they want."""

    def __call__(self, *inputs: Any) -> None:
        # nobody hooks into these, and the hooks of nn.Module's own call cost as much as a small kernel
        self.forward(*inputs)


def stored_parameters(module: nn.Module, prefix: str = "") -> Iterator[Stored]:
    """Every stored parameter of a model, or of a part of one that is called `prefix` in it, in the order of its layers."""
    for path, child in module.named_modules(prefix=prefix):
        if isinstance(child, Layer):
            yield from child.stored(path)
