"""Journal: the answers of a batch as they come, each whole or not there, so that a run that was cut off goes on where it was.

The first line says whose answers they are. Each line after it is `number status checksum answer`; what follows the first line that does
not match its checksum is cut away when the file is opened. When all are there they are copied out in the order of the batch file.
"""

import contextlib
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from octavo.errors import ConfigError, OctavoError

VERSION = 1


class Owner(msgspec.Struct):
    """Whose answers: of which batch file (its digest), by which model."""

    digest: str
    model: str
    version: int = VERSION


class Journal:
    """Open by one process at a time. Raises ConfigError if another has it, or if it holds the answers of another run."""

    def __init__(self, path: Path, owner: Owner) -> None:
        self._path = path
        self._places: dict[int, tuple[int, int]] = {}  # number -> offset and length of the answer
        self.num_failed = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}", "choose another -o, or --output-tmp-dir") from None
        try:
            _lock(self._file, path)
            self._restore(owner)
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def append(self, number: int, answer: bytes, failed: bool) -> None:
        """Keep an answer: what is written survives the end of this process, and after sync() that of the machine."""
        head = b"%d %s %08x " % (number, b"failed" if failed else b"ok", zlib.crc32(answer))
        place = self._file.tell() + len(head)
        self._write(head + answer + b"\n")
        self._places[number] = (place, len(answer))
        self.num_failed += failed

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def copy_to(self, path: Path) -> None:
        """All answers in the order of their numbers, as the file `path`, which is there whole or as it was before."""
        try:
            if path.exists() and not path.is_file():  # a pipe or a device
                with path.open("wb") as target:
                    self._copy(target)
                return
            new = path.with_name(path.name + ".new")
            with new.open("wb") as target:
                self._copy(target)
                target.flush()
                os.fsync(target.fileno())
            os.replace(new, path)
            _sync_folder(path.parent)
        except OSError as error:
            hint = f"the answers are in {self._path}: run the same command again when it can be written"
            raise OctavoError(f"{path} cannot be written: {error.strerror}", hint) from None

    def remove(self) -> None:
        """When the answers are where they belong."""
        self._path.unlink(missing_ok=True)

    def _copy(self, target: IO[bytes]) -> None:
        with self._path.open("rb") as source:
            for number in sorted(self._places):
                offset, length = self._places[number]
                source.seek(offset)
                target.write(source.read(length) + b"\n")

    def _restore(self, owner: Owner) -> None:
        """Take over what an earlier run left, up to its first torn line."""
        self._file.seek(0)
        end = 0
        with self._path.open("rb") as file:
            first = file.readline()
            if first.endswith(b"\n"):
                _check_owner(first, owner, self._path)
                end = len(first)
                for raw in file:
                    if (found := _parse(raw)) is None:
                        break
                    number, failed, length = found
                    self._places[number] = (end + len(raw) - 1 - length, length)
                    self.num_failed += failed
                    end += len(raw)
        self._file.truncate(end)
        self._file.seek(end)
        if end == 0:
            self._write(msgspec.json.encode(owner) + b"\n")

    def _write(self, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            hint = "make room, then run the same command again: what was answered is kept"
            raise OctavoError(f"{self._path} cannot be written: {error.strerror}", hint) from None


def _parse(raw: bytes) -> tuple[int, bool, int] | None:
    """(number, whether it failed, length of the answer) of a line that is whole."""
    parts = raw.removesuffix(b"\n").split(b" ", 3)
    if len(parts) != 4 or not raw.endswith(b"\n") or b"%08x" % zlib.crc32(parts[3]) != parts[2] or not parts[0].isdigit():
        return None
    return int(parts[0]), parts[1] == b"failed", len(parts[3])


def _check_owner(first: bytes, owner: Owner, path: Path) -> None:
    try:
        found = msgspec.json.decode(first, type=Owner)
    except msgspec.DecodeError:
        raise ConfigError(f"{path} is not what an earlier run-batch left", "remove it, or choose another -o") from None
    for what, theirs, ours in (
        ("by another version", found.version, owner.version),
        ("to another batch file", found.digest, owner.digest),
        (f"by another model ({found.model})", found.model, owner.model),
    ):
        if theirs != ours:
            raise ConfigError(f"{path} holds answers {what}, of a run that was cut off", "remove it to begin anew, or choose another -o")


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows, where two runs at once are not noticed
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"another run-batch is writing {path}", "wait for it, or choose another -o") from None


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every system lets folders be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
