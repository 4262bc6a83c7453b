"""Memory of the host: buffers on huge pages, and how much of it this process holds. How much there is, config/machine.py says."""

import mmap
import os
from pathlib import Path

import psutil
import torch

HUGE_PAGE = 2 * 1024 * 1024


def allocate(size_bytes: int) -> torch.Tensor:
    """A zero-filled uint8 tensor of `size_bytes`, freed with its last view.

    From one huge page upwards it is a private anonymous mapping aligned to 2 MiB that asks for huge pages, and nothing of it is resident
    until it is touched. (File mappings and shared anonymous ones get no huge pages.)
    """
    if size_bytes < HUGE_PAGE or not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.zeros(size_bytes, dtype=torch.uint8)
    length = (size_bytes + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE + HUGE_PAGE
    try:
        mapping = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"the system refuses a mapping of {size_bytes} bytes: {error.strerror}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel built without huge pages: the mapping works all the same
    whole = torch.frombuffer(mapping, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE_PAGE
    return whole[start : start + size_bytes]


def rss_anon_bytes() -> int:
    """Anonymous memory that this process holds now: what nobody else shares and no file backs."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(psutil.Process().memory_info().rss)  # no /proc: everything resident is the nearest figure


def drop_file_pages(path: str | os.PathLike[str]) -> None:
    """Tell the system that the cached pages of a file are not needed again. A hint: it may do nothing."""
    if not hasattr(os, "posix_fadvise"):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
