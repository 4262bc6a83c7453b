"""safetensors: what the headers of a folder's files say, checked against the files. Read without torch and without the safetensors library.

Source of the format: the README of the safetensors project: 8 bytes little-endian header length, a JSON header, then the tensors' bytes; a
sharded model has an index file with a weight_map from tensor name to file.
"""

import json
import re
from pathlib import Path
from typing import Any

from octavo.checkpoint.entry import Entry
from octavo.errors import CheckpointError

MAX_HEADER_BYTES = 100_000_000
INDEX_NAME = "model.safetensors.index.json"

# bits of one element
BITS = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "I64": 64,
    "I32": 32,
    "I16": 16,
    "I8": 8,
    "U64": 64,
    "U32": 32,
    "U16": 16,
    "U8": 8,
    "BOOL": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "C64": 64,
}


class _Twice(ValueError):
    pass


def read(folder: Path) -> dict[str, Entry]:
    """Every tensor in the model's safetensors files in `folder`, by name.

    Raises CheckpointError with a list of all that is wrong: no files, missing shards, damaged or truncated files, a name in two files.
    """
    weight_map = _weight_map(folder / INDEX_NAME)
    files = _files(folder) if weight_map is None else sorted({folder / name for name in weight_map.values()})
    faults = [f"{file.name} is missing" for file in files if not file.is_file()]
    entries: dict[str, Entry] = {}
    for file in files:
        if not file.is_file():
            continue
        try:
            header = read_file(file)
        except CheckpointError as error:
            faults.append(error.fact)
            continue
        for entry in header.values():
            if entry.name in entries:
                faults.append(f"tensor {entry.name} stands in {entries[entry.name].file.name} and in {file.name}")
            entries[entry.name] = entry
    if weight_map is not None and not faults:
        faults = [
            f"{INDEX_NAME} says that {name} is in {file}, but it is not"
            for name, file in weight_map.items()
            if name not in entries or entries[name].file.name != file
        ]
    if faults:
        shown = "\n  ".join(faults[:20]) + (f"\n  and {len(faults) - 20} more" if len(faults) > 20 else "")
        raise CheckpointError(f"the checkpoint in {folder} is not whole:\n  {shown}", "fetch the model again, all of its files")
    return entries


def read_file(file: Path) -> dict[str, Entry]:
    """The tensors of one file. Raises CheckpointError if the header is not what it should be or the file ends before its tensors do."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > MAX_HEADER_BYTES or length > size - 8:
            raise CheckpointError(f"{file.name} is no safetensors file, or is cut short: {size} bytes, a header of {length}")
        header = _parse(stream.read(length), file)
    start = 8 + length
    entries = {name: _entry(name, value, file, start, size) for name, value in header.items() if name != "__metadata__"}
    end, last = start, ""
    for entry in sorted(entries.values(), key=lambda e: (e.offset, e.size_bytes)):
        if entry.offset < end and entry.size_bytes:
            raise CheckpointError(f"{file.name}: tensors {last} and {entry.name} overlap")
        end, last = max(end, entry.offset + entry.size_bytes), entry.name
    return entries


def _parse(raw: bytes, file: Path) -> dict[str, Any]:
    try:
        header = json.loads(raw, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file.name}: the header cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{file.name}: the header is no table of tensors")
    return header


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(f"{next(name for name in names if names.count(name) > 1)!r} stands twice")
    return table


def _entry(name: str, value: Any, file: Path, start: int, size: int) -> Entry:
    try:
        number_format, shape, (begin, end) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
        is_well_formed = all(type(number) is int and number >= 0 for number in (*shape, begin, end)) and begin <= end
    except (TypeError, KeyError, ValueError):
        is_well_formed = False
    if not is_well_formed:
        raise CheckpointError(f"{file.name}: the entry of tensor {name} is malformed")
    if number_format not in BITS:
        raise CheckpointError(f"{file.name}: tensor {name} is in the unknown number format {number_format!r}")
    entry = Entry(name, file, start + begin, end - begin, number_format, shape)
    if entry.num_elements * BITS[number_format] != 8 * entry.size_bytes:
        raise CheckpointError(f"{file.name}: tensor {name} of shape {list(shape)} in {number_format} cannot have {entry.size_bytes} bytes")
    if start + end > size:
        raise CheckpointError(f"{file.name} is cut short: it ends at byte {size}, tensor {name} at {start + end}")
    return entry


def _weight_map(file: Path) -> dict[str, str] | None:
    if not file.is_file():
        return None
    try:
        weight_map = json.loads(file.read_bytes())["weight_map"]
        names = set(weight_map.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file} cannot be read: {type(error).__name__}: {error}") from None
    strange = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    if strange:
        raise CheckpointError(f"{file} names {strange[0]!r}, which is no file of its folder")
    return dict(weight_map)


def _files(folder: Path) -> list[Path]:
    """Where there is no index: model.safetensors, else all shards, else the consolidated file. Missing shards are told by their numbers."""
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    found = sorted(file for file in folder.glob("*.safetensors") if not file.name.startswith(("adapter_", "consolidated")))
    if not found:
        found = sorted(folder.glob("consolidated*.safetensors"))
    if not found:
        raise _no_safetensors(folder)
    numbered = [re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.safetensors", file.name) for file in found]
    if first := next((match for match in numbered if match), None):
        count = int(first[3])
        if count > 10_000:
            raise CheckpointError(f"{folder / first[0]} says that it is one of {count} files")
        return [folder / f"{first[1]}-{number:05}-of-{first[3]}.safetensors" for number in range(1, count + 1)]
    return found


def _no_safetensors(folder: Path) -> CheckpointError:
    pickled = sorted(file.name for suffix in ("*.bin", "*.pt", "*.pth") for file in folder.glob(suffix))
    if pickled:
        return CheckpointError(
            f"{folder} has its weights in {pickled[0]} only: a pickle, which can run code, and which octavo never opens",
            "take a repository that has safetensors, or, where you trust it, load it with transformers and save_pretrained",
        )
    return CheckpointError(f"no .safetensors file in {folder}", "is the download complete? --load-format dummy runs without weights")
