"""Guarded tensors: reading or writing one element past their end (or before their start) is a fault that ends the process."""

import ctypes
import mmap
import weakref

import torch

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_PAGE = mmap.PAGESIZE
_NONE = 0


def _between_guards(size: int) -> tuple[int, int]:
    """(start, end) of fresh whole pages that hold `size` bytes, with an inaccessible page before and after."""
    inside = max(1, -(-size // _PAGE)) * _PAGE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = _libc.mmap(None, inside + 2 * _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise MemoryError("mmap failed")
    start, end = base + _PAGE, base + _PAGE + inside
    for page in (base, end):
        if _libc.mprotect(page, _PAGE, _NONE) != 0:
            raise OSError(ctypes.get_errno(), "mprotect failed")
    return start, end


def empty(*shape: int, dtype: torch.dtype, ends: bool = True) -> torch.Tensor:
    """An uninitialized contiguous tensor that ends exactly at an inaccessible page (ends=False: that starts right after one)."""
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    start, end = _between_guards(size)
    space = (ctypes.c_char * max(size, 1)).from_address(end - size if ends and size else start)
    tensor = torch.frombuffer(space, dtype=torch.uint8)[:size].view(dtype).view(shape)
    weakref.finalize(space, _libc.munmap, start - _PAGE, end - start + 2 * _PAGE)
    return tensor


def copy(tensor: torch.Tensor, ends: bool = True) -> torch.Tensor:
    """A guarded contiguous copy."""
    return empty(*tensor.shape, dtype=tensor.dtype, ends=ends).copy_(tensor)


def copies(weight: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Guarded copies of a weight's tensors, whether one or several."""
    return copy(weight) if isinstance(weight, torch.Tensor) else tuple(copy(tensor) for tensor in weight)
