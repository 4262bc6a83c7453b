"""Team: the pool's threads, each on a core of its own. A system may put two of them on one core and leave another idle for seconds."""

import ctypes
import os
import time
from typing import Any

import llvmlite.binding as llvm
import torch
from numba import types

from octavo.ops.cpu import compile, pool, vectors

_APART_S = 0.02  # between two looks: a look costs a parallel region, some 10 us
_library = None if not hasattr(os, "sched_setaffinity") else ctypes.CDLL(None)
_asks = tuple(getattr(_library, name, None) for name in ("sched_getcpu", "gettid"))
for _name, _function in zip(("octavo_core", "octavo_thread"), _asks):
    if _function is not None:
        llvm.add_symbol(_name, ctypes.cast(_function, ctypes.c_void_p).value)
_core = types.ExternalFunction("octavo_core", types.int32())
_thread = types.ExternalFunction("octavo_thread", types.int32())


def build():
    """Units are threads. arguments: where each writes its number and the core that it is on."""
    int64s = vectors.int64s

    def body(begin, end, arguments):
        told = int64s(int64s(arguments)[0] + begin * 16)
        told[0] = _thread()
        told[1] = _core()

    return body


class Team:
    """To be made and used on the thread that computes."""

    def __init__(self) -> None:
        self._threads = torch.get_num_threads()
        self._told = (ctypes.c_int64 * (2 * self._threads))()
        self._arguments = pool.Arguments(1)
        self._arguments.set(ctypes.addressof(self._told))
        self._last = 0.0
        can_move = self._threads > 1 and None not in _asks
        self._kernel = compile.kernel(build) if can_move else None

    def keep_apart(self) -> None:
        """Where two threads share a core and another core is free for them, move one there. It may be moved on: it is bound to none."""
        now = time.monotonic()
        if self._kernel is None or now - self._last < _APART_S:
            return
        self._last = now
        ctypes.memset(self._told, 0, ctypes.sizeof(self._told))
        self._kernel.run(self._threads, 1, self._arguments)
        for thread, core, allowed in moves(list(self._told)):
            try:
                os.sched_setaffinity(thread, {core})
                os.sched_setaffinity(thread, allowed)
            except OSError:
                return  # a thread that is gone, or a system that does not let one


def moves(told: list[int]) -> list[tuple[int, int, Any]]:
    """told: of each thread its number, 0 for one that did not run, and its core. Whom to move, where to, and where it may be."""
    threads = [(thread, core) for thread, core in zip(told[::2], told[1::2]) if thread]
    taken: set[int] = set()
    crowded = []
    for thread, core in threads:
        if core in taken:
            crowded.append(thread)
        taken.add(core)
    found: list[tuple[int, int, Any]] = []
    for thread in crowded:
        allowed = os.sched_getaffinity(thread)
        free = sorted(allowed - taken)
        if free:
            taken.add(free[0])
            found.append((thread, free[0], allowed))
    return found
