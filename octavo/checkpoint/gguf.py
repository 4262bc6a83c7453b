"""GGUF: what a file's header says. Nothing is believed before it is checked against the size of the file; no tensor is read here.

Source of the format: docs/gguf.md of the ggml project (versions 2 and 3, little-endian), and the block sizes of ggml.h's type table.
"""

import mmap
import os
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import CheckpointError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_NESTING = 4

# number in the file -> (name, elements of a block, bytes of a block)
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

# metadata value type -> its number format; 8 is a string, 9 an array
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_STRING, _ARRAY = 8, 9
_u32, _u64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: `type` as in TYPES, `shape` outermost axis first (in the file it is last), `offset` from the start of the file."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A file's header.

    metadata: str, int, float or bool; arrays of numbers are numpy arrays, arrays of strings and nested arrays are lists. Strings are
    decoded as UTF-8 with surrogateescape, so that a token that is no valid UTF-8 stays distinct.
    """

    path: Path
    version: int
    alignment: int
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor] = field(repr=False)

    @property
    def architecture(self) -> str:
        """`general.architecture`; CheckpointError without it."""
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str) or not name:
            raise CheckpointError(f"{self.path} does not say general.architecture", "it is no language model")
        return name

    def of(self, key: str, default: Any = None) -> Any:
        """The metadata value `<architecture>.<key>`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)


def read_header(path: str | Path) -> GgufHeader:
    """The header of the GGUF file at `path`; remembered until the file changes.

    Raises CheckpointError for a file that is not GGUF, is of another version or byte order, or is cut short.
    """
    file = Path(path)
    try:
        status = os.stat(file)
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}") from None
    return _read_header(file, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4)
def _read_header(path: Path, size: int, _mtime_ns: int) -> GgufHeader:
    if size < 24:
        raise CheckpointError(f"{path} is no GGUF file: it has {size} bytes")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Reader(path, data).header()


class _Reader:
    """A position in the mapped file. Every step first checks that what it wants to read is there."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.position = 0

    def header(self) -> GgufHeader:
        version = self._magic_and_version()
        num_tensors, num_pairs = self._u64(), self._u64()
        # a pair takes at least 13 bytes, a tensor's entry at least 24: a larger count cannot be true
        self._check(num_pairs, 13, "metadata entries")
        self._check(num_tensors, 24, "tensors")
        metadata = self._metadata(num_pairs)
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
            raise self._fault(f"general.alignment is {alignment!r}, not a power of two of at least 8")
        self._check(num_tensors, 24, "tensors")
        entries = [self._tensor_entry() for _ in range(num_tensors)]
        start = -(-self.position // alignment) * alignment
        return GgufHeader(self.path, version, alignment, metadata, self._tensors(entries, start, alignment))

    def _magic_and_version(self) -> int:
        if self.data[:4] != MAGIC:
            raise CheckpointError(f"{self.path} is no GGUF file: it begins with {self.data[:4]!r}", "fetch it again")
        self.position = 4
        version = self._u32()
        if version & 0xFFFF == 0:
            raise CheckpointError(f"{self.path} is a big-endian GGUF file", "octavo reads little-endian files only")
        if version not in VERSIONS:
            raise CheckpointError(f"{self.path} is of GGUF version {version}", "octavo reads versions 2 and 3: convert the model again")
        return version

    def _metadata(self, num_pairs: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(num_pairs):
            key = self._string()
            if key in metadata:
                raise self._fault(f"the metadata key {key!r} stands twice")
            metadata[key] = self._value(self._u32(), key, 0)
        return metadata

    def _value(self, kind: int, key: str, depth: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(key, depth)
        if kind not in _SCALARS:
            raise self._fault(f"{key!r} has the unknown value type {kind}")
        return self._numbers(_SCALARS[kind], 1, key)[0].item()

    def _array(self, key: str, depth: int) -> Any:
        if depth >= MAX_NESTING:
            raise self._fault(f"{key!r} nests arrays more than {MAX_NESTING} deep")
        kind, count = self._u32(), self._u64()
        if kind in _SCALARS:
            return self._numbers(_SCALARS[kind], count, key)
        if kind == _STRING:
            return self._strings(count, key)
        if kind == _ARRAY:
            self._check(count, 12, f"arrays in {key!r}")
            return [self._array(key, depth + 1) for _ in range(count)]
        raise self._fault(f"{key!r} is an array of the unknown value type {kind}")

    def _numbers(self, dtype: np.dtype[Any], count: int, key: str) -> np.ndarray[Any, Any]:
        self._check(count, dtype.itemsize, f"values of {key!r}")
        begin = self.position
        self.position += count * dtype.itemsize
        raw = self.data[begin : self.position]
        # a byte other than 0 and 1 is no valid bool for numpy
        return np.frombuffer(raw, np.uint8) != 0 if dtype.kind == "b" else np.frombuffer(raw, dtype)

    def _strings(self, count: int, key: str) -> list[str]:
        """An array of strings, in one tight loop: vocabularies have hundreds of thousands."""
        self._check(count, 8, f"strings of {key!r}")
        data, size, position, length_at = self.data, self.size, self.position, _u64.unpack_from
        out = []
        for _ in range(count):
            begin = position + 8
            if begin > size:
                raise self._fault(f"the file ends inside {key!r}")
            position = begin + length_at(data, position)[0]
            if position > size:
                raise self._fault(f"the file ends inside {key!r}")
            out.append(data[begin:position].decode("utf-8", "surrogateescape"))
        self.position = position
        return out

    def _tensor_entry(self) -> tuple[str, int, tuple[int, ...], int]:
        name = self._string()
        dimensions = self._u32()
        if dimensions > MAX_DIMENSIONS:
            raise self._fault(f"tensor {name!r} has {dimensions} axes")
        shape = tuple(reversed([self._u64() for _ in range(dimensions)]))
        return name, self._u32(), shape, self._u64()

    def _tensors(self, entries: list[tuple[str, int, tuple[int, ...], int]], start: int, alignment: int) -> dict[str, GgufTensor]:
        """The directory, each entry checked against the file and against its neighbours."""
        tensors: dict[str, GgufTensor] = {}
        cut_short = []
        for name, kind, shape, offset in entries:
            if name in tensors:
                raise self._fault(f"tensor {name!r} stands twice")
            if kind not in TYPES:
                raise self._fault(f"tensor {name!r} has the unknown number format {kind}")
            type_name, block, block_bytes = TYPES[kind]
            if (shape[-1] if shape else 1) % block:
                raise self._fault(f"tensor {name!r} of shape {list(shape)} cannot be in {type_name}: its rows are no multiple of {block}")
            if offset % alignment:
                raise self._fault(f"tensor {name!r} is not aligned to {alignment} bytes")
            size = _product(shape) // block * block_bytes
            if start + offset + size > self.size:
                cut_short.append(name)
            tensors[name] = GgufTensor(name, type_name, shape, start + offset, size)
        if cut_short:
            more = f" and {len(cut_short) - 5} more" if len(cut_short) > 5 else ""
            raise self._fault(f"the file ends before {', '.join(cut_short[:5])}{more}")
        self._check_overlap(tensors)
        return tensors

    def _check_overlap(self, tensors: dict[str, GgufTensor]) -> None:
        end, last = 0, ""
        for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.size_bytes)):
            if tensor.offset < end and tensor.size_bytes:
                raise self._fault(f"tensors {last!r} and {tensor.name!r} overlap")
            end, last = max(end, tensor.offset + tensor.size_bytes), tensor.name

    def _string(self) -> str:
        length = self._u64()
        self._check(length, 1, "bytes of a string")
        begin = self.position
        self.position += length
        return self.data[begin : self.position].decode("utf-8", "surrogateescape")

    def _u32(self) -> int:
        self._check(1, 4, "header")
        value: int = _u32.unpack_from(self.data, self.position)[0]
        self.position += 4
        return value

    def _u64(self) -> int:
        self._check(1, 8, "header")
        value: int = _u64.unpack_from(self.data, self.position)[0]
        self.position += 8
        return value

    def _check(self, count: int, item_bytes: int, what: str) -> None:
        if count * item_bytes > self.size - self.position:
            raise self._fault(
                f"the header speaks of {count} {what}, more than the file can hold" if count > 1 else "the file ends in its header"
            )

    def _fault(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}", "the file is damaged or cut short: fetch it again")


def _product(shape: tuple[int, ...]) -> int:
    out = 1
    for size in shape:
        out *= size
    return out
