"""The machine: cores and memory that this process may use, cgroups considered."""

import math
import os
from pathlib import Path

import msgspec
import psutil

from octavo.errors import ConfigError


class MachineFacts(msgspec.Struct, frozen=True):
    cores: int  # that this process may use
    total_bytes: int  # of memory
    available_bytes: int
    device: str = "cpu"  # for others, total_bytes and available_bytes are the memory of one
    is_a100: bool = False  # defaults are smaller there


def look() -> MachineFacts:
    """Read the affinity mask, the cgroup's CPU quota and limits of memory; whichever allows less counts."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cores = os.cpu_count() or 1
    quota = _cgroup_cores()
    return MachineFacts(max(1, min(cores, quota) if quota else cores), total_bytes(), available_bytes())


def affinity() -> list[int]:
    """The cores that this process may run on; empty where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def parse_cores(text: str) -> list[int]:
    """`0-3,6` -> [0, 1, 2, 3, 6]. Raises ConfigError."""
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)) or int(last or first) > 4095:
            raise ConfigError(f"{text!r} names no cores", "write them as 0-3,6")
        cores.update(range(int(first), int(last or first) + 1))
    return sorted(cores)


def _cgroup_cores() -> int | None:
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else max(1, math.ceil(int(limit) / int(period)))
    except (OSError, ValueError):
        return None


def total_bytes(root: Path = Path("/")) -> int:
    """Memory of the machine, or the lowest limit of the cgroups around this process where that is less."""
    total = _machine(root, "MemTotal")
    return min([total, *(limit for limit, _ in _cgroup_limits(root))])


def available_bytes(root: Path = Path("/")) -> int:
    """What can be allocated without swapping: MemAvailable, or what the cgroups around this process leave where that is less."""
    available = _machine(root, "MemAvailable")
    return max(0, min([available, *(limit - used for limit, used in _cgroup_limits(root))]))


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
