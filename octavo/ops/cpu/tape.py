"""Tape: the kernels that a step called, with their arguments, as one list that is walked in one parallel region.

The pool's own fork and join, and the Python between two calls, cost more than a small model's kernel. Here every thread walks the whole
list. A kernel's units lie in pieces, some of them each thread's own; who has done its own takes what others have not begun, and goes on
when all are done. So a thread that the system has put aside holds up no kernel that it has not begun. Which thread does which piece changes
no bit.
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

OP = 8  # int64 numbers: body, arguments, units, units a piece, pieces, pieces a thread, threads, address of its counters
HEADER = 2  # the list's address, its length
LINE = 64  # bytes: a counter has a cache line of its own
_PIECES = 4  # of each thread
# pauses, some 5 us: after them a waiting thread offers its core, to another of the team if that is where the system has put both; where
# nobody else wants it the offer costs as little as a pause
_SPINS = 250

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
    """A body over threads, each of which walks the list."""
    int64s, op_size, line, most_spins = vectors.int64s, OP, LINE, _SPINS

    @compile.inner
    def take(op, owner):
        """Do the pieces of one owner that nobody has begun; how many there were."""
        first = owner * op[5]
        count = min(op[4] - first, op[5])
        counter = op[7] + (1 + owner) * line
        done = 0
        while _read(counter) < count:
            number = _add(counter, 1)
            if number >= count:
                break
            unit = (first + number) * op[3]
            _call(op[0], unit, min(op[2], unit + op[3]), op[1])
            done += 1
        return done

    def body(begin, end, arguments):
        a = int64s(arguments)
        for number in range(a[1]):
            op = int64s(a[0] + number * op_size * 8)
            if _read(op[7]) >= op[4]:
                continue
            done = 0
            for step in range(op[6]):
                done += take(op, (begin + step) % op[6])
            if done > 0:
                _add(op[7], done)
            spins = 0
            while _read(op[7]) < op[4]:
                _pause()
                spins += 1
                if spins > most_spins:
                    _give_way()

    return body


def prepare() -> compile.Kernel:
    """The kernel that walks a tape."""
    return compile.kernel(build)


class Tape:
    """What was recorded. Addresses that its kernels got must hold when it is replayed: buffers that do not move, of the same shapes."""

    def __init__(self, calls: list[tuple[int, int, int, bytes]]) -> None:
        """calls: of each kernel its body's address, units, least units a thread, arguments."""
        self._threads = torch.get_num_threads()
        cuts = [_cut(count, grain, self._threads) for _, count, grain, _ in calls]
        self._counters_bytes = LINE * sum(1 + threads for *_, threads in cuts)
        numbers = HEADER + OP * len(calls) + sum(len(arguments) // 8 for *_, arguments in calls)
        self._block = (ctypes.c_int64 * ((self._counters_bytes + LINE) // 8 + numbers))()
        self.size_bytes = ctypes.sizeof(self._block)
        self._counters = -(-ctypes.addressof(self._block) // LINE) * LINE
        self._header = self._counters + self._counters_bytes
        op = self._header + HEADER * 8
        _int64s(self._header, HEADER)[:] = [op, len(calls)]
        at, counters = op + OP * 8 * len(calls), self._counters
        for (body, count, _, arguments), (each, pieces, own, threads) in zip(calls, cuts, strict=True):
            _int64s(op, OP)[:] = [body, at, count, each, pieces, own, threads, counters]
            ctypes.memmove(at, arguments, len(arguments))
            op += OP * 8
            at += len(arguments)
            counters += LINE * (1 + threads)
        self._kernel = prepare()

    def replay(self) -> None:
        """Run it all; the GIL is free meanwhile."""
        ctypes.memset(self._counters, 0, self._counters_bytes)
        pool.parallel_for(self._threads, 1, self._kernel.address, self._header)


def _cut(count: int, grain: int, threads: int) -> tuple[int, int, int, int]:
    """(units a piece, pieces, pieces a thread, threads) of a kernel: pieces of whole grains, for as many threads as have a grain each."""
    grain = max(1, grain)
    used = min(threads, -(-count // grain))
    if used == 1:
        return count, 1, 1, 1
    each = -(-count // (used * _PIECES * grain)) * grain
    pieces = -(-count // each)
    own = -(-pieces // used)
    return each, pieces, own, -(-pieces // own)


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
