"""Entry: one tensor on disk, whatever the file's format."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """offset: from the start of `file`. number_format: as the file says it: BF16, F32, F8_E4M3, I64, ... or GGUF's Q4_K, Q8_0, ..."""

    name: str
    file: Path
    offset: int
    size_bytes: int
    number_format: str
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        out = 1
        for extent in self.shape:
            out *= extent
        return out
