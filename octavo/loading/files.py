"""A checkpoint's files, mapped: a tensor's bytes as a torch view of the file. Nothing is copied, and nothing is ever unpickled."""

import ctypes
import mmap
from pathlib import Path
from types import TracebackType

import numpy as np
import torch

from octavo.checkpoint.entry import Entry
from octavo.errors import CheckpointError

# the number formats that can be copied into a weight as they are
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

# those of quantized checkpoints, as torch can hold them
OTHERS = {
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.uint8,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
}


class Files:
    """Maps each file when it is first asked for. Tensors that it gave must not be used after `close`."""

    def __init__(self) -> None:
        self._maps: dict[Path, tuple[mmap.mmap, int]] = {}

    def raw(self, entry: Entry) -> torch.Tensor:
        """The entry's bytes, uint8 [size_bytes], a view of the file."""
        if entry.size_bytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        mapped, address = self._mapped(entry.file)
        if entry.offset + entry.size_bytes > len(mapped):
            raise CheckpointError(f"{entry.file} ends before {entry.name}", "the file was cut short after it was opened")
        # by its address, because torch warns of a read-only buffer though nothing here writes to it
        memory = (ctypes.c_uint8 * entry.size_bytes).from_address(address + entry.offset)
        return torch.frombuffer(memory, dtype=torch.uint8)

    def plain(self, entry: Entry) -> torch.Tensor:
        """The tensor itself, for the formats of FLOATS. A view of the file, where its place in the file is aligned."""
        return self._view(entry, FLOATS[entry.number_format])

    def as_it_is(self, entry: Entry) -> torch.Tensor:
        """The same, for the formats of FLOATS and OTHERS."""
        return self._view(entry, (FLOATS | OTHERS)[entry.number_format])

    def _view(self, entry: Entry, dtype: torch.dtype) -> torch.Tensor:
        raw = self.raw(entry)
        if entry.offset % dtype.itemsize:
            raw = raw.clone()
        return raw.view(dtype).view(entry.shape)

    def drop_pages(self) -> None:
        """Tell the kernel that what was read so far is not needed in this process's memory any more."""
        for mapped, _ in self._maps.values():
            _advise(mapped, "MADV_DONTNEED")

    def close(self) -> None:
        for mapped, _ in self._maps.values():
            mapped.close()
        self._maps.clear()

    def __enter__(self) -> "Files":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _mapped(self, file: Path) -> tuple[mmap.mmap, int]:
        if file not in self._maps:
            try:
                with file.open("rb") as stream:
                    mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise CheckpointError(f"cannot read {file}: {error}") from None
            _advise(mapped, "MADV_SEQUENTIAL")
            self._maps[file] = (mapped, np.frombuffer(mapped, np.uint8).ctypes.data)
        return self._maps[file]


def _advise(mapped: mmap.mmap, advice: str) -> None:
    """Advice, where the system takes it."""
    if hasattr(mmap, advice):
        mapped.madvise(getattr(mmap, advice))
