"""Progress: a bar for a batch of prompts on standard error, and a line of what was achieved when it is done."""

import sys
import time
from collections.abc import Callable
from typing import Any

from octavo.protocol.messages import EngineStats
from octavo.protocol.outputs import RequestOutput

LINE_EVERY_S = 10.0  # where standard error is no terminal


class Progress:
    """Counts finished requests and their tokens."""

    def __init__(self, total: int, weights_bytes: int, bar: "Bar") -> None:
        self._total = total
        self._weights_bytes = weights_bytes
        self._bar = bar
        self._start_s = time.monotonic()
        self._finished = 0
        self._tokens_in = 0
        self._tokens_out = 0
        self._tokens_cached = 0
        self._num_steps = 0
        self._step_s = 0.0

    @classmethod
    def of(cls, use_tqdm: bool | Callable[..., Any], total: int, weights_bytes: int) -> "Progress | None":
        """None if no progress is wanted. A callable is one like tqdm: it gets total and desc, and gives what has update(n) and close()."""
        if not use_tqdm or total == 0:
            return None
        bar: Bar = ForeignBar(use_tqdm(total=total, desc="Processed prompts")) if callable(use_tqdm) else _own_bar(total)
        return cls(total, weights_bytes, bar)

    def note_finished(self, output: RequestOutput) -> None:
        self._finished += 1
        self._tokens_in += len(output.prompt_token_ids or ())
        self._tokens_out += sum(len(o.token_ids) for o in output.outputs)
        self._tokens_cached += output.num_cached_tokens or 0
        self._bar.show(self._finished, self._rates())

    def note_engine(self, stats: EngineStats) -> None:
        self._num_steps += len(stats.step_tokens)
        self._step_s += stats.step_s

    def close(self) -> None:
        """End the bar, and say what was achieved."""
        self._bar.close()
        print(self.summary(), file=sys.stderr)

    def summary(self) -> str:
        """One line: requests, seconds, tokens a second, weights read a second, cache hits."""
        words = [f"{self._finished} of {self._total} prompts in {time.monotonic() - self._start_s:.1f} s", self._rates()]
        if self._step_s > 0 and self._weights_bytes:
            words.append(f"weights {self._num_steps * self._weights_bytes / self._step_s / 1e9:.1f} GB/s")
        if self._tokens_cached:
            words.append(f"prefix cache {100 * self._tokens_cached / max(self._tokens_in, 1):.0f} %")
        return ", ".join(words)

    def _rates(self) -> str:
        seconds = max(time.monotonic() - self._start_s, 1e-9)
        return f"input {self._tokens_in / seconds:.1f} tokens/s, output {self._tokens_out / seconds:.1f} tokens/s"


class Bar:
    """Lines now and then, for a log file."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._next_s = time.monotonic() + LINE_EVERY_S

    def show(self, finished: int, rates: str) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LINE_EVERY_S
            print(f"{finished} of {self._total} prompts, {rates}", file=sys.stderr)

    def close(self) -> None:
        """Nothing is left to draw."""


class ForeignBar(Bar):
    """A bar of the caller's, with tqdm's interface."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def show(self, finished: int, rates: str) -> None:
        self._bar.update(1)

    def close(self) -> None:
        self._bar.close()


class TerminalBar(Bar):
    """A bar that is drawn in place."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rates]}"), TimeRemainingColumn())
        self._drawing = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._drawing.add_task("prompts", total=total, rates="")
        self._drawing.start()

    def show(self, finished: int, rates: str) -> None:
        self._drawing.update(self._task, completed=finished, rates=rates)

    def close(self) -> None:
        self._drawing.stop()


def _own_bar(total: int) -> Bar:
    return TerminalBar(total) if sys.stderr.isatty() else Bar(total)
