"""Progress of a batch on standard error: a bar on a terminal, a line every ten seconds elsewhere."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from octavo.checkpoint.progress import LINE_EVERY_S, is_terminal
from octavo.server.batch.journal import Journal


class Progress:
    """Answered lines, of `total`; `before` of them by an earlier run."""

    def __init__(self, total: int, before: int, journal: Journal) -> None:
        self._total = total
        self._before = before
        self._journal = journal
        self._started_s = time.monotonic()
        self._next_s = self._started_s + LINE_EVERY_S
        self._drawing: Any = None
        if is_terminal():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            columns = (TextColumn("lines"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]}"), TimeRemainingColumn())
            self._drawing = RichProgress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._drawing.add_task("lines", total=total, completed=before, failed="")

    def __enter__(self) -> Self:
        if self._drawing is not None:
            self._drawing.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._drawing is not None:
            self._drawing.stop()

    def show(self) -> None:
        """After an answer."""
        done, failed = len(self._journal), self._journal.num_failed
        said = f"{failed} failed" if failed else ""
        if self._drawing is not None:
            self._drawing.update(self._task, completed=done, failed=said)
        elif (now := time.monotonic()) >= self._next_s:
            self._next_s = now + LINE_EVERY_S
            each_s = (now - self._started_s) / max(done - self._before, 1)
            left_s = each_s * (self._total - done)
            words = [f"{done} of {self._total} lines", said, f"{left_s:.0f} s left"]
            print(", ".join(word for word in words if word), file=sys.stderr, flush=True)
