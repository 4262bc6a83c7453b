"""The first thing that runs in a child process: it ties the child's life to the parent's, then runs the child's own main.

    python -m octavo.engine.child TARGET LIFE PULSE DIRECTORY ARGUMENTS...

LIFE and PULSE are descriptors whose other ends the parent holds. End-of-file on LIFE means that the parent is dead, however it died; a byte
that it wants the child's end. What comes on PULSE is sent back, as a sign of life. DIRECTORY is that of the sockets between the two: if the
parent dies it is removed, and with it the files that it says are left behind.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import NoReturn

from octavo import environment, plugins
from octavo.engine.launcher import grace_s, remove_left_behind
from octavo.logging import get_logger

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


class _Life:
    """What the parent wants, whether it lives, and what is to be removed if it does not."""

    def __init__(self, life: socket.socket, directory: Path) -> None:
        self._life = life
        self._directory = directory
        self._parent_pid = os.getppid()
        self._parent_is_dead = threading.Event()
        self._is_over = False

    def watch(self) -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_signal)
        threading.Thread(target=self._wait, name="octavo-parent", daemon=True).start()
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    def end(self, status: int) -> NoReturn:
        # the parent-death signal may come a moment before the end-of-file
        wait_s = 0.5 if status == 128 + signal.SIGTERM else 0
        if self._parent_is_dead.wait(wait_s) or os.getppid() != self._parent_pid:
            remove_left_behind(self._directory)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_over or os.getppid() != self._parent_pid:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # both watches may speak; the end must run once
            sys.exit(128 + number)

    def _wait(self) -> None:
        """The main thread gets SIGTERM when the end has come, and a grace later the process ends by force."""
        try:
            told = self._life.recv(1)
        except OSError:
            told = b""
        if not told:
            self._parent_is_dead.set()
        self._is_over = True
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(grace_s())
        self.end(1)


def main(arguments: list[str]) -> None:
    """Run the target and end the process without the interpreter's teardown, which would wait for threads that compute."""
    target, life_descriptor, pulse_descriptor, directory, *rest = arguments
    room, _, module = target.rpartition(".")
    life = _Life(socket.socket(fileno=int(life_descriptor)), Path(directory))
    _name_process({"engine": "core"}.get(room, room))
    status = 0
    try:
        life.watch()  # the end may come from here on, also in the middle of the next line
        threading.Thread(target=_answer_pulse, args=(int(pulse_descriptor),), name="octavo-pulse", daemon=True).start()
        plugins.load(room, module).main(rest)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        get_logger(__name__).exception("the process fails")
        status = 1
    life.end(status)


def _name_process(role: str) -> None:
    """As ps and top show it: 15 characters are the most that the kernel keeps."""
    if sys.platform == "linux":
        name = f"{environment.process_name_prefix()}-{role}".encode()[:15]
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)


def _answer_pulse(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as pulse:
        try:
            while asked := pulse.recv(1):
                pulse.send(asked)
        except OSError:
            pass  # the parent is dead, which the other socket tells


if __name__ == "__main__":
    main(sys.argv[1:])
