"""Tape: the kernels that a step called, with their arguments, as one list that is walked in one parallel region.

Between two kernels of a list the threads meet at a counter, spinning; the pool's own fork and join, and the Python between two calls, cost
more than a small model's kernel. A kernel that fits one thread needs no meeting with the next one of its kind. Each kernel's units are cut
as the pool cuts them, and which thread has which changes no bit.
"""

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.ops.cpu import compile, pool, vectors
from octavo.ops.cpu.vectors import i64

OP = 6  # int64 numbers: body, arguments, units, units a thread, threads, whether the threads meet before it
HEADER = 4  # the list's address, its length, threads, the counter's address
_SPINS = 4000  # pauses, some 50 us: after them a waiting thread lets others have its core

_YIELD = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
_system = ctypes.WinDLL("kernel32") if sys.platform == "win32" else ctypes.CDLL(None)
llvm.add_symbol("octavo_yield", ctypes.cast(getattr(_system, _YIELD), ctypes.c_void_p).value)
_give_way = types.ExternalFunction("octavo_yield", types.int32())


@intrinsic
def _call(typing_context, body, begin, end, arguments):
    """Call a body by its address."""

    def generate(context, b, s, args):
        kind = ir.FunctionType(ir.VoidType(), [i64, i64, i64])
        b.call(b.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@intrinsic
def _add(typing_context, address, value):
    """Add to the int64 at an address that threads share; all that was written before is seen by who reads the sum."""

    def generate(context, b, s, args):
        return b.atomic_rmw("add", vectors.at(b, args[0], i64), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _read(typing_context, address):
    """The int64 at an address that threads share."""

    def generate(context, b, s, args):
        return b.load_atomic(vectors.at(b, args[0], i64), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def _pause(typing_context):
    """Tell the core that this is a spin."""

    def generate(context, b, s, args):
        if platform.machine().lower() in ("x86_64", "amd64"):
            b.call(vectors.declare(b, "llvm.x86.sse2.pause", ir.VoidType(), []), [])
        return context.get_dummy_value()

    return types.void(), generate


def build():
    """A body over threads, each of which walks the whole list and does its own units of every kernel."""
    int64s, op_size, most_spins = vectors.int64s, OP, _SPINS

    @compile.inner
    def meet(counter, threads, target):
        _add(counter, threads)
        spins = 0
        while _read(counter) < target:
            _pause()
            spins += 1
            if spins > most_spins:
                _give_way()

    def body(begin, end, arguments):
        a = int64s(arguments)
        met = 0
        for number in range(a[1]):
            op = int64s(a[0] + number * op_size * 8)
            if op[5] != 0:
                met += a[2]
                meet(a[3], end - begin, met)  # where one thread got several parts, it counts for as many
            each = op[3]
            for thread in range(begin, min(end, op[4])):
                first = thread * each
                _call(op[0], first, min(op[2], first + each), op[1])

    return body


class Tape:
    """What was recorded. Addresses that its kernels got must hold when it is replayed: buffers that do not move, of the same shapes."""

    def __init__(self, calls: list[tuple[int, int, int, bytes]]) -> None:
        """calls: of each kernel its body's address, units, least units a thread, arguments."""
        threads = torch.get_num_threads()
        sizes = [len(arguments) // 8 for *_, arguments in calls]
        # the counter has a cache line of its own
        self._block = (ctypes.c_int64 * (24 + HEADER + OP * len(calls) + sum(sizes)))()
        start = ctypes.addressof(self._block)
        self._counter = -(-start // 64) * 64 + 64
        self._header = self._counter + 64
        ops = self._header + HEADER * 8
        at = ops + OP * 8 * len(calls)
        self._threads = threads
        self.size_bytes = ctypes.sizeof(self._block)
        _int64s(self._header, HEADER)[:] = [ops, len(calls), threads, self._counter]
        was_alone = True
        for number, (body, count, grain, arguments) in enumerate(calls):
            used = min(threads, -(-count // max(1, grain)))
            each = -(-count // used)
            used = -(-count // each)
            meets = number > 0 and not (was_alone and used == 1)
            _int64s(ops + number * OP * 8, OP)[:] = [body, at, count, each, used, int(meets)]
            ctypes.memmove(at, arguments, len(arguments))
            at += len(arguments)
            was_alone = used == 1
        self._kernel = compile.kernel(build)

    def replay(self) -> None:
        """Run it all; the GIL is free meanwhile."""
        ctypes.memset(self._counter, 0, 8)
        pool.parallel_for(self._threads, 1, self._kernel.address, self._header)


def _int64s(address: int, count: int) -> Any:
    return (ctypes.c_int64 * count).from_address(address)


class Recording:
    """What a stretch of work called. `foreign`: the first thing it did that no tape can repeat."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, int, int, bytes]] = []
        self.foreign: str | None = None

    def run(self, kernel: compile.Kernel, count: int, grain: int, arguments: pool.Arguments) -> None:
        if count > 0:
            self._calls.append((kernel.address, count, grain, arguments.copied()))
        kernel.run(count, grain, arguments)

    def tape(self) -> Tape | None:
        """None where something foreign was done, or nothing at all."""
        return Tape(self._calls) if self._calls and self.foreign is None else None


@contextmanager
def recording() -> Iterator[Recording]:
    """What is done inside is done, and recorded."""
    record = Recording()
    with compile.running(record.run), _Foreign(record):
        yield record


class _Foreign(TorchDispatchMode):
    """Notes what torch itself computes: a tape would leave it out. Views compute nothing."""

    def __init__(self, record: Recording) -> None:
        super().__init__()
        self._record = record

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and self._record.foreign is None:
            self._record.foreign = f"torch computes {func}"
        return func(*args, **(kwargs or {}))
