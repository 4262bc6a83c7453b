"""The first thing that runs in a child process: it ties the child's life to the parent's, then runs the child's own main.

    python -m octavo.engine.child TARGET DESCRIPTOR DIRECTORY ARGUMENTS...

The parent holds the other end of DESCRIPTOR, so end-of-file on it means that the parent is dead, however it died.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType

from octavo import environment, plugins
from octavo.engine.launcher import grace_s, remove_directory
from octavo.logging import get_logger

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def main(arguments: list[str]) -> None:
    """Run the target and end the process without the interpreter's teardown, which would wait for threads that compute."""
    target, descriptor, directory, *rest = arguments
    room, _, module = target.rpartition(".")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    orphaned = _watch_parent(socket.socket(fileno=int(descriptor)))
    _name_process({"engine": "core"}.get(room, room))
    status = 0
    try:
        plugins.load(room, module).main(rest)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        get_logger(__name__).exception("the process fails")
        status = 1
    # the parent-death signal may come a moment before the end-of-file
    if orphaned.wait(0.5 if status == 128 + signal.SIGTERM else 0):
        remove_directory(Path(directory))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _name_process(role: str) -> None:
    """As ps and top show it: 15 characters are the most that the kernel keeps."""
    if sys.platform == "linux":
        name = f"{environment.process_name_prefix()}-{role}".encode()[:15]
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # both watches may speak; the end must run once
    sys.exit(128 + number)


def _watch_parent(life: socket.socket) -> threading.Event:
    """The event is set when the parent is dead; the main thread then gets SIGTERM, and a grace later the process ends by force."""
    orphaned = threading.Event()

    def wait() -> None:
        try:
            life.recv(1)
        except OSError:
            pass
        orphaned.set()
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(grace_s())
        os._exit(1)

    threading.Thread(target=wait, name="octavo-parent", daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return orphaned


if __name__ == "__main__":
    main(sys.argv[1:])
