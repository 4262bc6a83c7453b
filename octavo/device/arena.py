"""Arena: the scratch memory of a step. What a step needs is known before the first one runs, and never grows.

The forward of a model takes every intermediate from here. Run once on meta tensors for the largest step, it says how many bytes that is
(`high_water`); the same code then runs in a buffer of that size. Nothing is zeroed; what a scope took is given back when it ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

ALIGNMENT = 64
_CACHED_VIEWS = 4096  # decode steps ask for the same views again and again; prefill shapes vary


class Arena:
    """Bump allocation in one buffer. Pass no buffer to measure: tensors are then on the meta device."""

    def __init__(self, buffer: torch.Tensor | None = None) -> None:
        self._buffer = buffer
        self._size = buffer.numel() if buffer is not None else 0
        self.top = 0  # bytes taken now
        self._views: dict[tuple[int, tuple[int, ...], torch.dtype], torch.Tensor] = {}
        self.high_water = 0

    def empty(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """An uninitialized contiguous tensor, valid until the enclosing scope ends.

        Raises MemoryError if the buffer is too small: a step larger than the largest one that was measured.
        """
        start = self.top
        key = (start, shape, dtype)
        view = self._views.get(key)
        if view is None:
            if self._buffer is None:
                view = torch.empty(shape, dtype=dtype, device="meta")
                size = view.numel() * dtype.itemsize
            else:
                size = dtype.itemsize
                for extent in shape:
                    size *= extent
                if start + size > self._size:
                    raise MemoryError(f"arena: a step asks for {start + size} bytes of {self._size}")
                view = self._buffer[start : start + size].view(dtype).view(shape)
            if len(self._views) >= _CACHED_VIEWS:
                self._views.clear()
            self._views[key] = view
        self.top = (start + view.numel() * dtype.itemsize + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        if self.top > self.high_water:
            self.high_water = self.top
        return view

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Give back at the end what is taken inside."""
        top = self.top
        try:
            yield
        finally:
            self.top = top

    def reset(self) -> None:
        """Give everything back: the start of a step."""
        self.top = 0
