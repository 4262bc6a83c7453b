"""The index of a checkpoint: every tensor's name, place, number format and shape, from the headers alone. No tensor is read here."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from octavo.checkpoint import gguf, gguf_names, safetensors_index
from octavo.checkpoint.entry import Entry
from octavo.checkpoint.names import Names
from octavo.checkpoint.source import Source
from octavo.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Index:
    """entries: by the name on disk. names: what the format itself says about names (the GGUF architecture's table)."""

    path: Path
    kind: Literal["safetensors", "gguf"]
    entries: dict[str, Entry] = field(repr=False)
    names: Names = field(default_factory=Names, repr=False)

    @property
    def total_bytes(self) -> int:
        """Of all tensors, as they are on disk."""
        return sum(entry.size_bytes for entry in self.entries.values())


def read(source: Source | str | Path) -> Index:
    """The index of a folder of safetensors files, or of a .gguf file (all its parts, if it is split).

    Raises CheckpointError for files that are missing, damaged or cut short.
    """
    path = source.path if isinstance(source, Source) else Path(source)
    if path.is_dir():
        return Index(path, "safetensors", safetensors_index.read(path))
    header = gguf.read_header(path)
    entries: dict[str, Entry] = {}
    for part in gguf_parts(path, header):
        for tensor in gguf.read_header(part).tensors.values():
            if tensor.name in entries:
                raise CheckpointError(f"tensor {tensor.name!r} stands in {entries[tensor.name].file.name} and in {part.name}")
            entries[tensor.name] = Entry(tensor.name, part, tensor.offset, tensor.size_bytes, tensor.type, tensor.shape)
    return Index(path, "gguf", entries, gguf_names.table(header))


def gguf_parts(path: Path, header: gguf.GgufHeader) -> list[Path]:
    """The files of a model that was split (`name-00001-of-00003.gguf`), or the one file."""
    count = int(header.metadata.get("split.count", 0))
    if count <= 1:
        return [path]
    named = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if named is None or int(named[3]) != count:
        raise CheckpointError(f"{path} is one of {count} parts", f"they must be called NAME-00001-of-{count:05}.gguf")
    parts = [path.with_name(f"{named[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise CheckpointError(f"{path.parent} lacks {', '.join(missing)}", "fetch all parts of the model into one folder")
    return parts
