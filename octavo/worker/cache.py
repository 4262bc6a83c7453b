"""Cache: one buffer of slots x blocks x pages, each layer bound to its slot, and the moves of whole blocks that a plan orders."""

import torch

from octavo.device.device import Device
from octavo.kvcache.specs import CachePlan
from octavo.layers.decoder import CausalLM
from octavo.protocol.columns import unpack
from octavo.protocol.step import GroupChange

PAGE = 4096


class Cache:
    """Layer i of each group has slot i; a block is one column of the buffer, [slots, block]. Raises MemoryError if it cannot be mapped."""

    def __init__(self, plan: CachePlan, device: Device, model: CausalLM) -> None:
        self.plan = plan
        self._buffer = device.allocate(plan.total_bytes)
        self._pages = self._buffer.view(plan.slots, plan.num_blocks, plan.page_bytes)
        layers = model.attention_layers()
        for number, group in enumerate(plan.groups):
            for slot, name in enumerate(group.layers):
                layers[name].bind(self._pages[slot], number, plan.block_size)

    def change(self, group: int, change: GroupChange) -> None:
        """Zeroings, then copies. Raises NotImplementedError for snapshots: no layer of this worker keeps recurrent state."""
        if change.save_rows or change.restore_rows:
            raise NotImplementedError(f"cache group {group}: snapshots of recurrent state, which none of the model's layers keeps")
        if not (change.zeroings or change.copy_sources):
            return
        slots = len(self.plan.groups[group].layers)
        if change.zeroings:
            self._pages[:slots, _indices(change.zeroings)] = 0
        if change.copy_sources:
            self._pages[:slots, _indices(change.copy_destinations)] = self._pages[:slots, _indices(change.copy_sources)]

    def touch(self) -> None:
        """Write every page of the buffer as it is."""
        self._buffer[::PAGE] += 0


def _indices(column: bytes) -> torch.Tensor:
    return torch.from_numpy(unpack(column).astype("int64"))
