"""Starting children: each one is a fresh interpreter that dies with its parent, and its death is seen at once.

Signals from outside do not end a child while its parent lives: a service manager sends SIGTERM to every process of a service at once, and
the parent alone knows when its children are not needed any more.
"""

import contextlib
import json
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import zmq

import octavo
from octavo import environment
from octavo.errors import EngineDeadError, MemoryPlanError, OctavoError
from octavo.logging import get_logger

logger = get_logger(__name__)

PULSE_S = 1.0  # how often a child that is watched is asked for a sign of life
END = b"E"  # on `life`: the parent wants the end; end-of-file: the parent is dead


def grace_s() -> float:
    """A child that was told to end and has not after this is killed."""
    return environment.worker_shutdown_timeout_s()


class Child:
    """A child process. `life` is one end of a socket pair whose other end only the child holds: it reads end-of-file when it is dead."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], life: socket.socket, pulse: socket.socket) -> None:
        self.name = name
        self.life = life
        self._pulse = pulse
        self._process = process
        self._is_closed = threading.Event()

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def death(self) -> str:
        """How it ended, in words; waits for the end if it is just under way."""
        try:
            code = self._process.wait(grace_s())
        except subprocess.TimeoutExpired:
            return f"the {self.name} process {self.pid} closed its connection"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
        return f"the {self.name} process {self.pid} {how}"

    def start_error(self) -> OctavoError:
        """The error for a child that died before it was ready."""
        death = self.death()
        if self._process.returncode == -signal.SIGKILL:
            return MemoryPlanError(
                f"{death} while it was loading, which is what the system does when memory runs out",
                "lower --gpu-memory-utilization or --max-num-batched-tokens, choose a smaller model, or stop other processes",
            )
        return EngineDeadError(f"{death} while it was starting", "its messages are on standard error, above")

    def terminate(self) -> None:
        """Ask for the end of a child that does not read its messages yet."""
        try:
            self.life.send(END)
        except OSError:
            pass  # it is dead

    def watch(self, timeout_s: float) -> None:
        """From now on, kill the child when it gives no sign of life for so long: stopped or stuck, it would hold its clients for ever.

        Turns are counted, not time: when the whole machine stood still, that is not the child's fault. 0 = never.
        """
        if timeout_s > 0:
            turns = max(1, round(timeout_s / PULSE_S))
            threading.Thread(target=self._watch, args=(turns,), name="octavo-pulse", daemon=True).start()

    def _watch(self, turns: int) -> None:
        missed = 0
        try:
            while not self._is_closed.wait(PULSE_S):
                if not missed:
                    self._pulse.send(b".")
                missed = missed + 1 if not select.select([self._pulse], [], [], 0)[0] else 0
                if missed == 0 and not self._pulse.recv(1):
                    return  # it is dead, which `life` tells
                if missed > turns:
                    logger.error(
                        "the %s process %d has given no sign of life for %d s, and is killed", self.name, self.pid, turns * PULSE_S
                    )
                    self._process.kill()
                    return
        except (OSError, ValueError):
            return  # it is dead, or closed

    def close(self, grace: float | None = None) -> None:
        """Wait for the end of a child that was told to end; kill it when the grace is over. Can be called twice."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        try:
            self._process.wait(grace_s() if grace is None else grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.life.close()
        self._pulse.close()


class _Starter:
    """The thread that starts all children. The kernel's parent-death signal is bound to the thread that forked, so it must never end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[list[str], dict[str, str], tuple[int, ...], queue.SimpleQueue[object]]] = queue.SimpleQueue()
        self._owner = 0

    def start(self, command: list[str], variables: dict[str, str], descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._owner != os.getpid():
                self._owner = os.getpid()
                threading.Thread(target=self._run, name="octavo-starter", daemon=True).start()
        answer: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._jobs.put((command, variables, descriptors, answer))
        result = answer.get()
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, subprocess.Popen)
        return result

    def _run(self) -> None:
        while True:
            command, variables, descriptors, answer = self._jobs.get()
            try:
                # a group of its own: Ctrl-C at the terminal reaches the parent only, which then ends its children in order
                answer.put(subprocess.Popen(command, env=variables, pass_fds=descriptors, process_group=0, stdin=subprocess.DEVNULL))
            except OSError as error:
                answer.put(error)


_starter = _Starter()
_directories: list[Path] = []  # of this process's sockets
_bequests: list[str] = []  # lines of LEFT_BEHIND
LEFT_BEHIND = "left-behind"  # in such a folder, a line of JSON for each file that is removed when this process dies: path and inode


def launch(name: str, target: str, arguments: list[str], directory: Path) -> Child:
    """Start `octavo.<target>.main(arguments)` in a new process.

    target: room and file, such as "worker.process". directory: of its sockets; the child removes it if the parent dies first.
    """
    ours, theirs = socket.socketpair()
    asked, answering = socket.socketpair()
    # -P: a file in the current folder must not stand in for a library
    module = [sys.executable, "-P", "-m", "octavo.engine.child"]
    command = [*module, target, str(theirs.fileno()), str(answering.fileno()), str(directory), *arguments]
    # threads of the pool spin for about 20 us between two kernels of a step and sleep between steps: sleeping between kernels costs as
    # much as a small model's arithmetic, spinning longer takes cores from whoever else has work; read when torch loads
    variables = {"GOMP_SPINCOUNT": "5000", **os.environ}
    paths = [str(Path(octavo.__file__).parent.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    variables["PYTHONPATH"] = os.pathsep.join(path for path in dict.fromkeys(paths) if path)
    try:
        process = _starter.start(command, variables, (theirs.fileno(), answering.fileno()))
    except OSError:
        ours.close()
        asked.close()
        raise
    finally:
        theirs.close()
        answering.close()
    return Child(name, process, ours, asked)


def bequeath(path: Path, inode: int) -> None:
    """Let the children, also those that are there already, remove this file if this process dies without having done it."""
    line = json.dumps([str(path), inode]) + "\n"
    _bequests.append(line)
    for directory in _directories:
        with contextlib.suppress(FileNotFoundError), (directory / LEFT_BEHIND).open("a") as file:
            file.write(line)


def remove_left_behind(directory: Path) -> None:
    """For a child whose parent is dead: the folder, and what its parent bequeathed."""
    try:
        lines = (directory / LEFT_BEHIND).read_text().splitlines()
    except FileNotFoundError:
        lines = []
    remove_directory(directory)
    for path, inode in map(json.loads, lines):
        remove_file(Path(path), inode)


def remove_file(path: Path, inode: int) -> None:
    """Remove the file unless another has taken its place."""
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except OSError:
        pass


def connect_outbox(outbox: "zmq.Socket[bytes]", address: str) -> None:
    """Aim a socket at what a child will bind. A send then never waits, whether the child is there yet or is there no more; one that is
    bound would wait for ever for a child that is dead, whose death is seen by its `life` only."""
    outbox.setsockopt(zmq.RECONNECT_IVL, 5)  # milliseconds
    outbox.connect(address)


def socket_directory() -> Path:
    """A new private folder for ipc sockets; a short path, since the system allows about 100 characters."""
    base = str(environment.socket_root())
    directory = Path(tempfile.mkdtemp(prefix="octavo-", dir=base if len(base) < 60 else "/tmp"))
    _directories.append(directory)
    (directory / LEFT_BEHIND).write_text("".join(_bequests))
    return directory


def remove_directory(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
