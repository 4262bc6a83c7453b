"""The CPU as a device: its memory is the host's, its threads are torch's pool."""

import ctypes
import os
import platform
from pathlib import Path

import torch

from octavo.config import machine
from octavo.config.config import DeviceConfig
from octavo.device import memory

RUNTIME_BYTES = 384 * 2**20  # about 200 MiB were seen with a model's kernels; the same for all, so that a plan knows the cache's size
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def create(config: DeviceConfig) -> "Cpu":
    """The CPU with the configured number of threads; to be called on the thread that will compute."""
    if config.cores is not None:
        os.sched_setaffinity(0, config.cores)  # of this thread, and of those that it will start: the pool
    return Cpu(config.threads)


class Cpu:
    kind = "cpu"
    label = "CPU"
    runtime_bytes = RUNTIME_BYTES

    def __init__(self, threads: int) -> None:
        # the pool's size is kept per calling thread by OpenMP, so it is set on the one that will compute
        torch.set_num_threads(threads)
        self.threads = threads
        self.description = f"{_processor_name()}, {threads} threads"

    def total_bytes(self) -> int:
        return machine.total_bytes()

    def available_bytes(self) -> int:
        return machine.available_bytes()

    def used_bytes(self) -> int:
        """Anonymous memory of this process, after free lists of the C library went back to the system."""
        _trim_heap()
        return memory.rss_anon_bytes()

    def allocate(self, size_bytes: int) -> torch.Tensor:
        return memory.allocate(size_bytes)

    def refuses_dtype(self, dtype: torch.dtype) -> str | None:
        return None if dtype in _DTYPES else f"{dtype} is not one of {', '.join(str(d) for d in _DTYPES)}"

    def synchronize(self) -> None:
        """Every call on a CPU has ended when it returns."""


def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _trim_heap() -> None:
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass  # not the GNU C library
