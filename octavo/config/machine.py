"""The machine as the control plane sees it: cores this process may use. Memory is the device's business (octavo/device)."""

import math
import os
from pathlib import Path

import msgspec


class MachineFacts(msgspec.Struct, frozen=True):
    cores: int  # that this process may use
    device: str = "cpu"


def look() -> MachineFacts:
    """Read the affinity mask and the cgroup's CPU quota, whichever allows fewer."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cores = os.cpu_count() or 1
    quota = _cgroup_cores()
    return MachineFacts(cores=max(1, min(cores, quota) if quota else cores))


def _cgroup_cores() -> int | None:
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else max(1, math.ceil(int(limit) / int(period)))
    except (OSError, ValueError):
        return None
