"""What this machine can do, measured now: bytes read a second and multiplications a second, on the threads that octavo uses."""

import statistics
import time
from collections.abc import Callable

import torch

from octavo.device import memory

READ_BYTES = 512 << 20


def best_of(call: Callable[[], object], seconds: float = 1.0) -> tuple[float, float]:
    """(median, best) seconds of a call, repeated for about `seconds`."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times), min(times)


def read_gb_s() -> float:
    """GB/s of summing a buffer in huge pages that no cache holds."""
    buffer = memory.allocate(READ_BYTES).view(torch.int64)
    buffer.fill_(1)
    _, best = best_of(buffer.sum)
    return READ_BYTES / best / 1e9


def product_gflop_s(dtype: torch.dtype, rows: int = 512, outputs: int = 2048, inputs: int = 2048) -> float:
    """GFLOP/s of torch's own product of that size."""
    x, weight = torch.randn(rows, inputs).to(dtype), torch.randn(outputs, inputs).to(dtype)
    _, best = best_of(lambda: torch.nn.functional.linear(x, weight))
    return 2 * rows * outputs * inputs / best / 1e9
