"""Memory of the host: buffers on huge pages, how much there is, how much of it this process holds."""

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


def total_bytes(root: Path = Path("/")) -> int:
    """Memory of the machine, or the lowest limit of the cgroups around this process where that is less."""
    total = _machine(root, "MemTotal")
    return min([total, *(limit for limit, _ in _cgroup_limits(root))])


def available_bytes(root: Path = Path("/")) -> int:
    """What can be allocated without swapping: MemAvailable, or what the cgroups around this process leave where that is less."""
    available = _machine(root, "MemAvailable")
    return max(0, min([available, *(limit - used for limit, used in _cgroup_limits(root))]))


def drop_file_pages(path: str | os.PathLike[str]) -> None:
    """Tell the system that the cached pages of a file are not needed again. A hint: it may do nothing."""
    if not hasattr(os, "posix_fadvise"):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _machine(root: Path, key: str) -> int:
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == key:
                return int(rest.split()[0]) * 1024
    except OSError:
        pass
    memory = psutil.virtual_memory()
    return int(memory.total if key == "MemTotal" else memory.available)


def _cgroup_limits(root: Path) -> list[tuple[int, int]]:
    """(limit, memory in use that cannot be reclaimed) of each cgroup around this process that has a limit, versions 1 and 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        # inside a container the path may name a folder that is mounted at the base itself, so folders that are missing are passed over
        for depth in range(len(parts), -1, -1):
            limit = _read_cgroup(base.joinpath(*parts[:depth]), *names)
            if limit is not None:
                found.append(limit)
    return found


def _read_cgroup(folder: Path, limit_name: str, usage_name: str, reclaimable_name: str) -> tuple[int, int] | None:
    try:
        limit = (folder / limit_name).read_text().strip()
        used = int((folder / usage_name).read_text())
        fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    if limit == "max" or int(limit) >= 1 << 60:  # version 1 says "none" with a huge number
        return None
    return int(limit), used - min(used, int(fields.get(reclaimable_name, 0)))
