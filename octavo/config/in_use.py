"""In use: files that running instances read, so that nobody removes them. They are held open, and the system tells who holds what."""

import os
from collections.abc import Iterable
from pathlib import Path


class Hold:
    """Keeps files and folders open, as long as this object or the process lives; nothing of them is read."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def add(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        """What does not exist, or cannot be held on this system, is passed over."""
        for path in paths:
            try:
                self._descriptors.append(os.open(path, getattr(os, "O_PATH", os.O_RDONLY)))
            except OSError:
                continue

    def release(self) -> None:
        descriptors, self._descriptors = self._descriptors, []
        for each in descriptors:
            os.close(each)


def held() -> set[Path]:
    """All that processes of this user hold open, theirs and other programs' alike. Empty where the system does not tell."""
    found: set[Path] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            with os.scandir(process / "fd") as entries:
                links = [os.readlink(entry.path) for entry in entries]
        except OSError:  # somebody else's, or it has just ended
            continue
        found.update(Path(link) for link in links if link.startswith("/"))
    return found
