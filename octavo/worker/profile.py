"""Profile: while it is on, every kernel's time and the weights that it read; and the rate at which this machine reads memory.

Kernels that do the same on other layers are one entry. A kernel's weights are those whose addresses are among its arguments.
"""

import statistics
import time
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from octavo.device import memory
from octavo.ops.cpu import compile, pool
from octavo.worker import read_loop

READ_BYTES = 256 << 20
_READS = 12


class Profile:
    """Of a worker on a CPU."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = {tensor.data_ptr(): tensor.nbytes for tensor in model.parameters() if tensor.nbytes}
        self._seen: dict[tuple[str, int], list[float]] = {}  # (kernel, units) -> calls, seconds, bytes of weights
        self._stack = ExitStack()

    def begin(self) -> None:
        self._seen.clear()
        self._stack.enter_context(compile.running(self._run))

    def end(self) -> list[dict[str, Any]]:
        """An entry for each kernel and number of units: what it took in all, most first."""
        self._stack.close()
        found = [
            {"kernel": name, "units": units, "calls": int(calls), "seconds": seconds, "weights_bytes": int(size)}
            for (name, units), (calls, seconds, size) in self._seen.items()
        ]
        return sorted(found, key=lambda entry: -entry["seconds"])

    def _run(self, kernel: compile.Kernel, count: int, grain: int, arguments: pool.Arguments) -> None:
        started = time.perf_counter()
        kernel.run(count, grain, arguments)
        seconds = time.perf_counter() - started
        entry = self._seen.setdefault((kernel.name, count), [0, 0.0, 0])
        entry[0] += 1
        entry[1] += seconds
        if "embedding" not in kernel.name:  # reads some rows
            entry[2] += self._bytes(arguments)

    def _bytes(self, arguments: pool.Arguments) -> int:
        words = memoryview(arguments.copied()).cast("q")
        return sum(self._weights.get(word, 0) for word in set(words))


def read_gb_s() -> float:
    """GB/s at which the threads of this worker read a buffer in huge pages: the best way's median."""
    buffer = memory.allocate(READ_BYTES)
    buffer.view(torch.float32).fill_(1)
    best = 0.0
    for runs in read_loop.RUNS:
        read = read_loop.reader(buffer, runs)
        times = []
        for _ in range(_READS):
            started = time.perf_counter()
            read()
            times.append(time.perf_counter() - started)
        best = max(best, READ_BYTES / statistics.median(times) / 1e9)
    return best
