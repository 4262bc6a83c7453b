"""The read loop: every byte of a buffer is loaded into a register once and added up, several runs of it at a time; nothing else is done."""

from collections.abc import Callable
from typing import Any

import torch

from octavo.ops.cpu import compile, features, pool, vectors

UNIT = 1 << 16  # bytes
RUNS = (1, 4)


def reader(buffer: torch.Tensor, runs: int) -> Callable[[], None]:
    """Reads a uint8 buffer on all threads; whole units of it."""
    kernel, arguments = compile.kernel(build, runs), pool.Arguments(2)
    arguments.set(buffer.data_ptr(), 0)
    return lambda: kernel(buffer.numel() // UNIT, 1, arguments)


def build(runs: int) -> Any:
    """Units are UNIT bytes. A thread's units are cut into `runs` runs that it walks side by side, as products walk several rows."""
    int64s: Any = vectors.int64s
    lanes = features.lanes()
    load: Any = vectors.load("float32", lanes)
    add: Any = vectors.reduce_add
    zero: Any = vectors.splat(lanes)
    width = 4 * lanes

    def units(begin: Any, end: Any, arguments: Any) -> None:
        a = int64s(arguments)
        start = a[0] + begin * UNIT
        length = (end - begin) * UNIT // runs // (4 * width) * (4 * width)
        s0, s1, s2, s3 = zero(vectors.single(0)), zero(vectors.single(0)), zero(vectors.single(0)), zero(vectors.single(0))
        offset = 0
        while offset < length:
            for run in range(runs):
                at = start + run * length + offset
                s0 = s0 + load(at)
                s1 = s1 + load(at + width)
                s2 = s2 + load(at + 2 * width)
                s3 = s3 + load(at + 3 * width)
            offset += 4 * width
        total = add(s0 + s1 + s2 + s3)
        if total == vectors.single(12345.0):  # never: the sums must be wanted by somebody
            a[1] = 1

    return units
