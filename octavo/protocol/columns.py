"""Columns: per-row facts of a step as int32 or float32 bytes, read back without a copy."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]


def pack(values: Iterable[int] | Int32) -> bytes:
    """int32 values as bytes."""
    if isinstance(values, np.ndarray):
        return values.astype(np.int32, copy=False).tobytes()
    return np.fromiter(values, np.int32).tobytes()


def unpack(column: bytes) -> Int32:
    """A read-only int32 view of a column."""
    return np.frombuffer(column, np.int32)


def pack_floats(values: Iterable[float] | Float32) -> bytes:
    """float32 values as bytes."""
    if isinstance(values, np.ndarray):
        return values.astype(np.float32, copy=False).tobytes()
    return np.fromiter(values, np.float32).tobytes()


def unpack_floats(column: bytes) -> Float32:
    """A read-only float32 view of a column."""
    return np.frombuffer(column, np.float32)
