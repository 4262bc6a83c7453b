"""Reservation: what each instance of this user on this machine is going to use, told to the others while it lives."""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from octavo import environment
from octavo.config.numbers import gib
from octavo.logging import get_logger

logger = get_logger(__name__)


class Reservation:
    """What this instance is going to use, told to the others of this user on this machine for as long as this process lives.

    A cache is mapped at once and becomes resident over hours, so what the system calls available is promised already. Each instance keeps a
    locked file with the size of its budget and the files that it reads; the system drops the lock when the process ends, however it ends.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or environment.runtime_root() / f"octavo-memory-{os.getuid() if hasattr(os, 'getuid') else 0}"
        self._path: Path | None = None
        self._files: list[str] = []
        self._descriptor = -1

    def promised_bytes(self) -> int:
        """What other instances may still take beyond what they hold now. Files of dead ones are removed."""
        return sum(max(0, size - _held_bytes(pid)) for pid, size, _ in self._others())

    def use(self, files: Sequence[str]) -> None:
        """Name the files, or folders, that this instance reads; told with the next take()."""
        self._files = [os.path.realpath(file) for file in files]

    def used_files(self) -> list[list[str]]:
        """What each other instance reads."""
        return [files for _, _, files in self._others()]

    def take(self, size_bytes: int) -> None:
        """Tell the others, in place of what was told before. Where that is not possible they see what is resident only."""
        try:
            import fcntl

            if self._path is None:
                self._directory.mkdir(mode=0o700, exist_ok=True)
                descriptor, name = tempfile.mkstemp(prefix=f"{os.getpid()}-", dir=self._directory)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                self._descriptor, self._path = descriptor, Path(name)
            os.pwrite(self._descriptor, f"{os.getpid()} {size_bytes:<20}\n{json.dumps(self._files)}\n".encode(), 0)
        except (OSError, ImportError) as error:  # no such locks on Windows
            logger.debug("other instances cannot be told of %s: %s", gib(size_bytes), error)

    def release(self) -> None:
        path, self._path = self._path, None
        if path is not None:
            path.unlink(missing_ok=True)
            os.close(self._descriptor)

    def _others(self) -> list[tuple[int, int, list[str]]]:
        found: list[tuple[int, int, list[str]]] = []
        try:
            import fcntl

            files = [path for path in self._directory.iterdir() if path != self._path]
        except (OSError, ImportError):
            return []
        for path in files:
            try:
                with path.open("rb") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    except BlockingIOError:
                        first, _, named = file.read().partition(b"\n")
                        pid, size = first.split()
                        found.append((int(pid), int(size), json.loads(named or b"[]")))
                    else:
                        if file.read():  # one that is still empty belongs to an instance that is about to lock it
                            path.unlink(missing_ok=True)
            except (OSError, ValueError):
                continue
        return found


def _held_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
