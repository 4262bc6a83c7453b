"""Views, applied: a tensor on disk becomes a parameter, cut before it is read wherever that is possible; and back, for writing.

A Lazy is a tensor that has not been read: it knows its shape, can be cut along an axis, and writes itself into a place, step by step.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod

import torch

from octavo.checkpoint.names import Add, Expert, Interleave, Part, RopePermutation, Split, Transpose, View
from octavo.ops import gguf_blocks

# how much is read at a time: small enough for the cache, large enough that the calls do not matter
CHUNK_ELEMENTS = 1 << 18


Step = Callable[[], None]


def _write(lazy: "Lazy", target: torch.Tensor) -> None:
    target.copy_(lazy.read())


class Lazy:
    """A tensor to be read. row_step: how many positions of axis 0 can be cut off without reading more than them."""

    shape: tuple[int, ...]
    row_step: int = 1

    def cut(self, axis: int, start: int, size: int) -> "Lazy":
        """Positions start .. start + size of an axis."""
        return self if (start, size) == (0, self.shape[axis]) else self._cut(axis, start, size)

    def _cut(self, axis: int, start: int, size: int) -> "Lazy":
        return Plain(self.read().narrow(axis, start, size))

    def read(self) -> torch.Tensor:
        """The tensor, in a floating-point format; float32 if it had to be widened. Possibly a view of the file."""
        raise NotImplementedError

    def steps(self, target: torch.Tensor) -> Iterator[Step]:
        """What fills `target`, of the same shape: steps in any order, on any thread. No widened copy of the whole is ever made."""
        rows = self.shape[0] if self.shape else 1
        step = max(1, CHUNK_ELEMENTS // max(1, prod(self.shape) // max(1, rows)) // self.row_step) * self.row_step
        if step >= rows:
            yield partial(_write, self, target)
            return
        for start in range(0, rows, step):
            size = min(step, rows - start)
            yield partial(_write, self.cut(0, start, size), target.narrow(0, start, size))

    def write_to(self, target: torch.Tensor) -> None:
        """All steps, one after the other."""
        for step in self.steps(target):
            step()


class Plain(Lazy):
    """A tensor that torch can look at as it is."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.shape = tuple(tensor.shape)

    def _cut(self, axis: int, start: int, size: int) -> Lazy:
        return Plain(self._tensor.narrow(axis, start, size))

    def read(self) -> torch.Tensor:
        return self._tensor


class Bytes(Plain):
    """A GGUF tensor as it is: bytes stand in place of elements on the last axis, which no view may touch."""

    def _cut(self, axis: int, start: int, size: int) -> Lazy:
        return Bytes(self._tensor.narrow(axis, start, size))

    def allows(self, view: View) -> bool:
        """Whether a view leaves blocks whole."""
        if isinstance(view, Split | Part | Interleave):
            return view.axis < len(self.shape) - 1
        return isinstance(view, Expert | RopePermutation)


class Blocks(Lazy):
    """A GGUF tensor: rows of blocks. Cut along any axis without reading, along the last one only between blocks."""

    def __init__(self, raw: torch.Tensor, number_format: str, shape: tuple[int, ...]) -> None:
        """raw: uint8, `shape` with bytes in place of elements on the last axis."""
        self._raw = raw
        self._format = number_format
        self._block, self._block_bytes = gguf_blocks.SIZES[number_format]
        self.shape = shape

    @classmethod
    def of(cls, raw: torch.Tensor, number_format: str, shape: tuple[int, ...]) -> "Blocks":
        """From the tensor's bytes, uint8 [size_bytes]."""
        elements, size_bytes = gguf_blocks.SIZES[number_format]
        return cls(raw.view(*shape[:-1], shape[-1] // elements * size_bytes), number_format, shape)

    def _cut(self, axis: int, start: int, size: int) -> Lazy:
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        if axis < len(self.shape) - 1:
            return Blocks(self._raw.narrow(axis, start, size), self._format, shape)
        if start % self._block or size % self._block:
            return super()._cut(axis, start, size)
        first, count = (position // self._block * self._block_bytes for position in (start, size))
        return Blocks(self._raw.narrow(axis, first, count), self._format, shape)

    def read(self) -> torch.Tensor:
        return gguf_blocks.widen(self._raw.reshape(-1, self._block_bytes), self._format).view(self.shape)


class Selected(Lazy):
    """One position of axis 0, which is then gone."""

    def __init__(self, packed: Lazy, index: int) -> None:
        self._one = packed.cut(0, index, 1)
        self.shape = packed.shape[1:]

    def _cut(self, axis: int, start: int, size: int) -> Lazy:
        return Selected(self._one.cut(axis + 1, start, size), 0)

    def read(self) -> torch.Tensor:
        return self._one.read().squeeze(0)


class Transposed(Lazy):
    """The last two axes swapped."""

    def __init__(self, lazy: Lazy) -> None:
        self._lazy = lazy
        self.shape = (*lazy.shape[:-2], lazy.shape[-1], lazy.shape[-2])

    def _cut(self, axis: int, start: int, size: int) -> Lazy:
        last = len(self.shape) - 1
        return Transposed(self._lazy.cut({last: last - 1, last - 1: last}.get(axis, axis), start, size))

    def read(self) -> torch.Tensor:
        return self._lazy.read().transpose(-1, -2)

    def steps(self, target: torch.Tensor) -> Iterator[Step]:
        return self._lazy.steps(target.transpose(-1, -2))


class Reordered(Lazy):
    """Interleave and RopePermutation: the positions of one axis in another order."""

    def __init__(self, lazy: Lazy, view: Interleave | RopePermutation) -> None:
        self._lazy = lazy
        self._view = view
        self.shape = lazy.shape
        self._axis = view.axis if isinstance(view, Interleave) else 0
        extent = self.shape[self._axis]
        # a run of this many positions is reordered within itself; the interleaved axis only as a whole
        self._run = extent // view.heads if isinstance(view, RopePermutation) else extent
        self.row_step = max(1, self._run) if self._axis == 0 else lazy.row_step

    def _cut(self, axis: int, start: int, size: int) -> Lazy:
        if axis != self._axis:
            return Reordered(self._lazy.cut(axis, start, size), self._view)
        if isinstance(self._view, RopePermutation):
            if start % self._run or size % self._run:
                return super()._cut(axis, start, size)
            return Reordered(self._lazy.cut(axis, start, size), RopePermutation(size // self._run))
        count, length = self._view.count, self.shape[axis] // self._view.count
        part = start // length
        if start + size > (part + 1) * length:
            return super()._cut(axis, start, size)
        one = self._lazy.cut(axis, (start - part * length) * count, size * count)
        return Plain(apply(self._view, one.read()).narrow(axis, part * size, size))

    def read(self) -> torch.Tensor:
        return apply(self._view, self._lazy.read())


class Added(Lazy):
    """A constant added, in float32."""

    def __init__(self, lazy: Lazy, constant: float) -> None:
        self._lazy = lazy
        self._constant = constant
        self.shape = lazy.shape
        self.row_step = lazy.row_step

    def _cut(self, axis: int, start: int, size: int) -> Lazy:
        return Added(self._lazy.cut(axis, start, size), self._constant)

    def read(self) -> torch.Tensor:
        return self._lazy.read().float() + self._constant


class Joined(Lazy):
    """Parts, one after the other along an axis, or (stacked) each one position of a new axis 0."""

    def __init__(self, parts: Sequence[Lazy], axis: int = 0, stacked: bool = False) -> None:
        self._parts = parts
        self._axis = axis
        self._stacked = stacked
        first = parts[0].shape
        extent = len(parts) if stacked else sum(part.shape[axis] for part in parts)
        self.shape = (extent, *first) if stacked else (*first[:axis], extent, *first[axis + 1 :])

    def _cut(self, axis: int, start: int, size: int) -> Lazy:
        if self._stacked:
            if axis == 0:
                return Joined(self._parts[start : start + size], stacked=True)
            return Joined([part.cut(axis - 1, start, size) for part in self._parts], stacked=True)
        if axis != self._axis:
            return Joined([part.cut(axis, start, size) for part in self._parts], self._axis)
        kept, position = [], 0
        for part in self._parts:
            begin, end = max(start, position), min(start + size, position + part.shape[axis])
            if begin < end:
                kept.append(part.cut(axis, begin - position, end - begin))
            position += part.shape[axis]
        return Joined(kept, axis)

    def read(self) -> torch.Tensor:
        tensors = [part.read() for part in self._parts]
        return torch.stack(tensors) if self._stacked else torch.cat(tensors, self._axis)

    def steps(self, target: torch.Tensor) -> Iterator[Step]:
        position = 0
        for part in self._parts:
            size = 1 if self._stacked else part.shape[self._axis]
            place = target[position] if self._stacked else target.narrow(self._axis, position, size)
            yield from part.steps(place)
            position += size


def lazily(view: View, lazy: Lazy) -> Lazy:
    """`lazy`, seen through one view, in the direction from disk to parameter. ValueError if its shape does not allow that.

    Part, and Expert where the parameter is what is packed, say where a piece goes and leave it as it is: see Joined.
    """
    if isinstance(view, Split):
        _need(lazy.shape, view.axis, view.start + view.size, view)
        return lazy.cut(view.axis, view.start, view.size)
    if isinstance(view, Expert):
        if not view.is_packed_on_disk:
            return lazy
        if view.index is None:
            raise ValueError(f"{view} has no number: its row has no {{e}} in the path")
        _need(lazy.shape, 0, view.index + 1, view)
        return Selected(lazy, view.index)
    if isinstance(view, Transpose):
        _need(lazy.shape, 1, 0, view)
        return Transposed(lazy)
    if isinstance(view, Interleave | RopePermutation):
        divisor = view.count if isinstance(view, Interleave) else 2 * view.heads
        axis = view.axis if isinstance(view, Interleave) else 0
        _need(lazy.shape, axis, divisor, view)
        if lazy.shape[axis] % divisor:
            raise ValueError(f"{view} does not divide axis {axis} of {list(lazy.shape)}")
        return Reordered(lazy, view)
    if isinstance(view, Add):
        return Added(lazy, view.constant)
    return lazy


def _need(shape: tuple[int, ...], axis: int, extent: int, view: View) -> None:
    if len(shape) <= axis or shape[axis] < extent:
        raise ValueError(f"{view} needs more than shape {list(shape)}")


def apply(view: View, tensor: torch.Tensor) -> torch.Tensor:
    """One view of a tensor that is in memory."""
    if isinstance(view, Interleave):
        axis, shape = view.axis, tensor.shape
        split = tensor.reshape(*shape[:axis], -1, view.count, *shape[axis + 1 :])
        return split.transpose(axis, axis + 1).reshape(shape)
    if isinstance(view, RopePermutation):
        return tensor.reshape(view.heads, -1, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
    return lazily(view, Plain(tensor)).read()


def undo(view: View, tensor: torch.Tensor) -> torch.Tensor:
    """The inverse of a view that keeps every element: Transpose, Interleave, RopePermutation, Add."""
    if isinstance(view, Interleave):
        return apply(Interleave(tensor.shape[view.axis] // view.count, view.axis), tensor)
    if isinstance(view, RopePermutation):
        return tensor.reshape(view.heads, 2, -1, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
    if isinstance(view, Add):
        return apply(Add(-view.constant), tensor)
    if isinstance(view, Transpose):
        return apply(view, tensor)
    raise TypeError(f"{view} takes a part: put() writes it")


def put(disk: torch.Tensor, views: Sequence[View], parameter: torch.Tensor) -> None:
    """Write a parameter into the tensor that goes to disk, where `views` would find it. Elements of other parameters stay as they are."""
    if not views:
        disk.copy_(parameter)
        return
    view, rest = views[0], views[1:]
    if isinstance(view, Split):
        put(disk.narrow(view.axis, view.start, view.size), rest, parameter)
    elif isinstance(view, Part):
        put(disk, rest, parameter.narrow(view.axis, view.start, view.size))
    elif isinstance(view, Expert):
        index = view.index
        if index is None:
            raise ValueError(f"{view} has no number")
        put(disk[index] if view.is_packed_on_disk else disk, rest, parameter if view.is_packed_on_disk else parameter[index])
    else:
        whole = apply(view, disk).clone()
        put(whole, rest, parameter)
        disk.copy_(undo(view, whole))
