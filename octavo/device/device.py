"""Device: what the rest of the device plane may ask of the thing it computes on. One file per kind of device makes one."""

from typing import Protocol

import torch


class Device(Protocol):
    """A file octavo/device/<kind>.py has `create(config: DeviceConfig) -> Device`."""

    kind: str  # a key of octavo/ops/order.py
    label: str  # as logs name it: "CPU"
    description: str  # the hardware, for the log
    threads: int  # of computation on the host
    runtime_bytes: int  # kept for interpreter, libraries and compiled kernels; a process that takes less leaves the rest unused

    def total_bytes(self) -> int:
        """All the memory an instance could use."""
        ...

    def available_bytes(self) -> int:
        """The part of it that is free now."""
        ...

    def used_bytes(self) -> int:
        """What this process holds of it now."""
        ...

    def allocate(self, size_bytes: int) -> torch.Tensor:
        """A uint8 tensor of `size_bytes` on the device, zero-filled. Raises MemoryError."""
        ...

    def refuses_dtype(self, dtype: torch.dtype) -> str | None:
        """Why the device cannot compute in `dtype`, or None."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was started has ended."""
        ...
