"""The worker's memory: what the instance may use, what each part takes, and the errors of a plan that cannot be, before it is tried."""

import hashlib
import itertools
import os
import socket
from pathlib import Path

from octavo import environment
from octavo.config import machine
from octavo.config.numbers import gib
from octavo.device.device import Device
from octavo.errors import MemoryPlanError
from octavo.kvcache.remedies import raise_utilization
from octavo.logging import get_logger

logger = get_logger(__name__)

GIB = 1024**3
LOADING_BYTES = 192 * 1024**2  # what loading adds to the runtime, mostly compiled kernels, with room: up to 100 MiB were seen


class Reservation:
    """What this instance is going to use, told to the others of this user on this machine for as long as this process lives.

    A cache is mapped at once and becomes resident over hours, so what the system calls available is promised already. Each instance holds a
    socket without a file whose name tells its budget: the system lists such names, and forgets one when its process ends, however it ends.

    directory: instances with another one are not reckoned with. Nothing is written there.
    """

    def __init__(self, directory: Path | None = None) -> None:
        place = hashlib.sha256(str(directory or environment.runtime_root()).encode()).hexdigest()[:12]
        self._prefix = f"octavo-memory-{os.getuid() if hasattr(os, 'getuid') else 0}-{place}/"
        self._descriptor = -1

    def promised_bytes(self) -> int:
        """What other instances may still take beyond what they hold now."""
        return sum(max(0, size - _held_bytes(pid)) for pid, size in self._others())

    def take(self, size_bytes: int) -> None:
        """Tell the others, in place of what was told before. Where that is not possible they see what is resident only."""
        try:
            # a number of its own, since one process may hold several
            name = f"{self._prefix}{os.getpid()}/{size_bytes}/{next(_numbers)}"
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as new:
                new.bind(f"\0{name}")
                self.release()
                self._descriptor = new.detach()
        except (OSError, AttributeError) as error:  # no such names but on Linux
            logger.debug("other instances cannot be told of %s: %s", gib(size_bytes), error)

    def release(self) -> None:
        former, self._descriptor = self._descriptor, -1
        if former >= 0:
            os.close(former)

    def _others(self) -> list[tuple[int, int]]:
        """Process and promised bytes of each. The name alone could be anyone's: it counts only if that process, one of ours, holds it."""
        own_inode = os.fstat(self._descriptor).st_ino if self._descriptor >= 0 else 0
        found = []
        try:
            lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
        except OSError:
            return []
        for line in lines:
            _, mark, rest = line.partition(f" @{self._prefix}")
            if not mark:
                continue
            try:
                pid, size, _ = (int(part) for part in rest.split("/"))
                inode = int(line.split()[6])
            except ValueError:
                continue
            if inode != own_inode and _holds(pid, inode):
                found.append((pid, size))
        return found


_numbers = itertools.count()


def _holds(pid: int, inode: int) -> bool:
    """Whether the process has the socket; only processes of this user can be asked."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(os.readlink(entry.path) == f"socket:[{inode}]" for entry in entries)
    except OSError:
        return False


def _held_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Ledger:
    """Where the budget goes. Each figure is set once, when it is known; sizes in bytes.

    utilization: share of the device that the instance may use. cache_bytes: a size for the cache that was asked for, in place of a budget.
    """

    def __init__(self, device: Device, utilization: float, cache_bytes: int | None, reservation: Reservation) -> None:
        self._device = device
        self._reservation = reservation
        self._utilization = utilization
        self._cache_bytes = cache_bytes
        self.total_bytes = device.total_bytes()
        self.promised_bytes = reservation.promised_bytes()
        self.available_bytes = max(0, device.available_bytes() - self.promised_bytes)
        self.at_start_bytes = device.used_bytes()
        self.budget_bytes = int(self.total_bytes * utilization)
        self.weights_bytes = 0
        self.arena_bytes = 0
        self.runtime_bytes = self.at_start_bytes

    @property
    def cache_budget_bytes(self) -> int:
        if self._cache_bytes is not None:
            return self._cache_bytes
        return max(0, self.budget_bytes - self._fixed_bytes)

    @property
    def free_bytes(self) -> int:
        """What this instance can have in all, with what it holds at the start."""
        return self.available_bytes + self.at_start_bytes

    @property
    def kept_runtime_bytes(self) -> int:
        """What the budget has for the runtime: the same at every start, so that the cache is, unless it takes more."""
        return max(self.runtime_bytes, self._device.runtime_bytes)

    @property
    def _fixed_bytes(self) -> int:
        return self.kept_runtime_bytes + self.weights_bytes + self.arena_bytes

    def check_device(self) -> None:
        """Before anything else: is there as much memory as the instance was told to use? Then tell others of it."""
        free, total = self.free_bytes, self.total_bytes
        if self._cache_bytes is None and free < self.budget_bytes:
            promised = f" ({gib(self.promised_bytes)} of it promised to other octavo instances)" if self.promised_bytes else ""
            fit = max(0.0, int(free / total * 100) / 100)
            raise MemoryPlanError(
                f"Free memory on device {self._device.label} ({free / GIB:.2f}/{gib(total)}) on startup is less than desired GPU memory "
                f"utilization ({self._utilization:g}, {gib(self.budget_bytes)}){promised}",
                f"lower --gpu-memory-utilization (at most {fit:.2f} fits now) or stop the other processes that use the memory",
            )
        if self._cache_bytes is None:
            self._reservation.take(self.budget_bytes)

    def check_sizes(self, weights_bytes: int, arena_bytes: int, least_cache_bytes: int) -> None:
        """Before the weights are read: do they and the scratch memory of the largest step fit? Sizes are those of the meta model.

        least_cache_bytes: what the engine needs for the cache to start at all; the remedy reckons with it.
        """
        self.weights_bytes, self.arena_bytes = weights_bytes, arena_bytes
        parts = f"weights {gib(weights_bytes)}, arena {gib(arena_bytes)}, runtime {gib(self.kept_runtime_bytes)}"
        if self._cache_bytes is None:
            if self._fixed_bytes >= self.budget_bytes:
                raise MemoryPlanError(
                    f"No available memory for the cache: {parts} fill the budget of {gib(self.budget_bytes)} "
                    f"(gpu_memory_utilization {self._utilization:g} of {gib(self.total_bytes)})",
                    self._remedy(least_cache_bytes),
                )
            return
        wanted = self._fixed_bytes + self._cache_bytes
        free = self.free_bytes
        if wanted > free:
            raise MemoryPlanError(
                f"{parts} and a cache of {gib(self._cache_bytes)} (--kv-cache-memory-bytes) are {gib(wanted)}, and {gib(free)} is free",
                f"lower --kv-cache-memory-bytes to at most {max(0, free - self._fixed_bytes)}, or stop other processes",
            )
        self._reservation.take(wanted)

    def close_books(self) -> None:
        """When everything but the cache is resident: what is neither weights nor arena is the runtime."""
        self.runtime_bytes = max(0, self._device.used_bytes() - self.weights_bytes - self.arena_bytes)
        if self._cache_bytes is not None:
            self._reservation.take(self._fixed_bytes + self._cache_bytes)

    def _remedy(self, least_cache_bytes: int) -> str:
        grown = max(0, self.runtime_bytes + LOADING_BYTES - self.kept_runtime_bytes)
        wanted = self._fixed_bytes + grown + least_cache_bytes
        raised = raise_utilization(wanted, self.free_bytes, self.total_bytes)
        return f"{raised}, or lower --max-num-batched-tokens" if self.arena_bytes > self.weights_bytes / 4 else raised


def loading_error(error: BaseException, ledger: Ledger) -> MemoryPlanError:
    """The error for memory that ran out while the model was being loaded."""
    return MemoryPlanError(
        f"out of memory while loading the model (weights {gib(ledger.weights_bytes)}, arena {gib(ledger.arena_bytes)}; "
        f"{gib(machine.available_bytes())} is free now): {str(error).splitlines()[0] if str(error) else type(error).__name__}",
        "stop other processes that use the memory, choose a smaller model, or lower --max-num-batched-tokens",
    )


def is_out_of_memory(error: BaseException) -> bool:
    """torch says it with a RuntimeError on a CPU."""
    text = str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and ("allocate memory" in text or "out of memory" in text))
