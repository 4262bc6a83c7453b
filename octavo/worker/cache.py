"""Cache: one buffer of blocks, each layer bound to its part of every block, and the moves of whole blocks that a plan orders."""

from collections import Counter

import torch

from octavo.device.device import Device
from octavo.kvcache.specs import CachePlan
from octavo.layers.decoder import CausalLM
from octavo.protocol.columns import unpack
from octavo.protocol.step import GroupChange

PAGE = 4096


class Cache:
    """Layer i of a group has the i-th page of each block. Raises MemoryError if the buffer cannot be mapped."""

    def __init__(self, plan: CachePlan, device: Device, model: CausalLM) -> None:
        self.plan = plan
        self._buffer = device.allocate(plan.total_bytes)
        self._blocks = self._buffer.view(plan.num_blocks, plan.block_bytes)
        layers = model.attention_layers()
        for number, group in enumerate(plan.groups):
            for index, name in enumerate(group.layers):
                layers[name].bind(self._blocks[:, index * group.page_bytes : (index + 1) * group.page_bytes], number, plan.block_size)

    def change(self, group: int, change: GroupChange) -> None:
        """Zeroings, then copies. Raises NotImplementedError for snapshots: no layer of this worker keeps recurrent state."""
        if change.save_rows or change.restore_rows:
            raise NotImplementedError(f"cache group {group}: snapshots of recurrent state, which none of the model's layers keeps")
        if not (change.zeroings or change.copy_sources):
            return
        used = len(self.plan.groups[group].layers) * self.plan.groups[group].page_bytes
        if change.zeroings:
            self._blocks[_indices(change.zeroings), :used] = 0
        if change.copy_sources:
            self._blocks[_indices(change.copy_destinations), :used] = self._blocks[_indices(change.copy_sources), :used]

    def touch(self) -> None:
        """Write every page of the buffer as it is."""
        self._buffer[::PAGE] += 0


def formats_told(model: CausalLM) -> str:
    """The formats of the layers' caches, and where their scales come from, for the log."""
    layers = model.attention_layers().values()
    counts = Counter(layer.cache_format.name for layer in layers)
    told = ", ".join(f"{name} in {count} layers" for name, count in counts.most_common())
    scaled = [layer.scales for layer in layers if layer.cache_format.has_layer_scale]
    if not scaled:
        return told
    scales = torch.stack(list(scaled))
    if (scales == 1).all():
        return f"{told}; scales are 1, the checkpoint has no others"
    return f"{told}; scales {float(scales.min()):.3g} to {float(scales.max()):.3g}, from the checkpoint"


def _indices(column: bytes) -> torch.Tensor:
    return torch.from_numpy(unpack(column).astype("int64"))
