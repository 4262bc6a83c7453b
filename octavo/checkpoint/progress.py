"""Progress of something slow on stderr: a bar on a terminal, a line every ten seconds elsewhere. Nothing at all if it ends before."""

import os
import sys
import time
from types import TracebackType
from typing import Any, Self

LINE_EVERY_S = 10.0


def is_terminal() -> bool:
    """Whether a bar can be drawn on stderr."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Silent:
    """Says nothing."""

    def __init__(self, label: str, total: int | None = None) -> None:
        self.label = label
        self.total = total

    def advance(self, count: int) -> None:
        """`count` more bytes are done."""

    def close(self) -> None:
        """It is over, one way or the other."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Bar(Silent):
    """Bytes done of `total` (None: unknown), under `label`."""

    def __init__(self, label: str, total: int | None = None) -> None:
        super().__init__(label, total)
        self.done = 0
        self._last_line_s = time.monotonic()
        self._rich: Any = None
        if is_terminal():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
            self._rich = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._rich.add_task(label, total=total)
            self._rich.start()

    def advance(self, count: int) -> None:
        self.done += count
        if self._rich is not None:
            self._rich.advance(self._task, count)
        elif (now := time.monotonic()) - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = now
            of = f" of {self.total / 1e6:.0f}" if self.total else ""
            print(f"{self.label}: {self.done / 1e6:.0f}{of} MB", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._rich is not None:
            self._rich.stop()
            self._rich = None
