"""Shard: every layer records which piece of itself is this rank's. Nothing is moved; the pieces are cut when they are read."""

from torch import nn

from octavo.layers.stored import Layer
from octavo.parallel.cut import Group


def shard(model: nn.Module, group: Group) -> None:
    """Raises ConfigError where a layer cannot be shared evenly between the ranks of the group."""
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.shard(group)
