"""Pool: torch's own threads run our kernels, so that one process has one team.

A kernel is a compiled body `(begin, end, arguments)`: what one thread does with units begin..end. `arguments` is the address of a block of
int64 that the caller filled. libtorch_cpu exports torch_parallel_for(begin, end, grain, body, arguments) as a C function (torch >= 2.10).
"""

import ctypes
import os
import struct
import sys

import llvmlite.binding as llvm
import torch
from numba import types

_FILES = {"win32": "torch_cpu.dll", "darwin": "libtorch_cpu.dylib"}
_library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", _FILES.get(sys.platform, "libtorch_cpu.so")))
_parallel_for = _library.torch_parallel_for
_parallel_for.restype = ctypes.c_int32
_parallel_for.argtypes = (ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
llvm.add_symbol("torch_parallel_for", ctypes.cast(_parallel_for, ctypes.c_void_p).value)

# the same function inside compiled code: (begin, end, grain, body address, arguments address) -> 0
torch_parallel_for = types.ExternalFunction(
    "torch_parallel_for", types.int32(types.int64, types.int64, types.int64, types.intp, types.intp)
)


class Arguments:
    """A kernel's block of int64: integers, addresses, and float64 through `bits`."""

    __slots__ = ("_block", "address")

    def __init__(self, count: int) -> None:
        self._block = (ctypes.c_int64 * count)()
        self.address = ctypes.addressof(self._block)

    def set(self, *values: int) -> None:
        """Fill the block; as many values as it has places."""
        self._block[:] = values

    def copied(self) -> bytes:
        """What is in the block now."""
        return bytes(self._block)


def bits(value: float) -> int:
    """A float64 as the int64 with the same bits: read in a kernel as `doubles(arguments)[i]`."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


def parallel_for(count: int, grain: int, body: int, arguments: int) -> None:
    """Run `body` over units 0..count on torch's threads, at least `grain` units a thread. The GIL is free meanwhile."""
    if count > 0 and _parallel_for(0, count, grain, body, arguments) != 0:
        raise RuntimeError("torch_parallel_for failed")


_scratch: list[torch.Tensor] = []


def scratch(size_bytes: int) -> int:
    """The address of at least `size_bytes` bytes that every kernel may use while it runs: they run one after another. It only grows."""
    if not _scratch or _scratch[0].numel() < size_bytes:
        _scratch[:] = [torch.empty(size_bytes, dtype=torch.uint8)]
    return _scratch[0].data_ptr()
