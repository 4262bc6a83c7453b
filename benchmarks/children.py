"""Children: engines in processes of their own, of which one at a time runs; the others are stopped, so that none takes a core from it."""

import json
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent


class EngineFailed(RuntimeError):
    """An engine said no, ended, or took too long. Its text is the reason."""


class Family:
    """A process and all that it starts, whatever sessions those are in."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path, pipes: bool = False) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        pipe = subprocess.PIPE if pipes else subprocess.DEVNULL
        with log.open("ab") as said:
            said.write(f"\n$ {' '.join(command)}\n".encode())
            said.flush()
            out = subprocess.PIPE if pipes else said
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=os.environ | environment, stdin=pipe, stdout=out, stderr=said, start_new_session=True
            )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP, self._members())

    def resume(self) -> None:
        self._signal(signal.SIGCONT, self._members())

    def end(self) -> None:
        """Ask the first of it to end, then make all of it."""
        members = self._members()
        self._signal(signal.SIGCONT, members)
        self._signal(signal.SIGTERM, members[:1])
        psutil.wait_procs(members, 10)
        self._signal(signal.SIGKILL, members)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def last_words(self, count: int = 400) -> str:
        """The end of what it logged."""
        return self.log.read_bytes()[-count:].decode(errors="replace").strip()

    def _members(self) -> list[psutil.Process]:
        try:
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    @staticmethod
    def _signal(number: signal.Signals, members: Sequence[psutil.Process]) -> None:
        for member in members:
            with suppress(psutil.NoSuchProcess):
                member.send_signal(number)


class Child:
    """A driver (benchmarks/drivers) that has loaded its model, and waits."""

    def __init__(self, python: str, driver: str, wanted: dict[str, Any], environment: dict[str, str], log: Path, limit_s: float) -> None:
        command = [python, "-m", f"benchmarks.drivers.{driver}", json.dumps(wanted)]
        self.family = Family(command, {"PYTHONPATH": str(ROOT)} | environment, log, pipes=True)
        self._lines: deque[bytes] = deque()
        self._rest = b""
        try:
            self.facts: dict[str, Any] = self._answer(limit_s)["facts"]
        except BaseException:
            self.family.end()
            raise
        self.family.pause()

    def measure(self, name: str, number: int, limit_s: float) -> dict[str, Any]:
        """What the driver measured. Raises EngineFailed; the child is of no use then."""
        self.family.resume()
        try:
            assert self.family.process.stdin is not None
            self.family.process.stdin.write(json.dumps({"measure": name, "number": number}).encode() + b"\n")
            self.family.process.stdin.flush()
            value: dict[str, Any] = self._answer(limit_s)["value"]
        except OSError as error:
            raise EngineFailed(f"it ended: {error}; {self.family.last_words()}") from None
        finally:
            self.family.pause()
        return value

    def end(self) -> None:
        self.family.end()

    def _answer(self, limit_s: float) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._line(limit_s))
        if "error" in answer:
            raise EngineFailed(answer["error"])
        return answer

    def _line(self, limit_s: float) -> bytes:
        out, end = self.family.process.stdout, time.monotonic() + limit_s
        assert out is not None
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            while not self._lines:
                if not ready.select(max(0.0, end - time.monotonic())):
                    raise EngineFailed(f"no answer within {limit_s:.0f} s")
                data = os.read(out.fileno(), 1 << 16)
                if not data:
                    raise EngineFailed(f"it ended: {self.family.last_words()}")
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._lines += whole
        return self._lines.popleft()
