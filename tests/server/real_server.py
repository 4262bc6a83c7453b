"""A server as users start it: `octavo serve FOLDER`, three processes over the script model, in a temporary folder of its own."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.script_model import write
from tests.server.serving import parse_events

ROOT = Path(__file__).parents[2]
SCRIPTS: dict[str, list[bytes | str]] = {
    "p": ["plain", " wor", "ds,", " no more"],
    "t": [b"a \xf0\x9f", b"\x98\x80 b", b" \xf0\x9f\x91", b"\xa9\xe2\x80", b"\x8d\xf0\x9f\x92\xbb", b" \xe4\xb8", b"\xad."],
    "x": ["<to", "ol_", "call>{}", "</tool", "_ca", "ll>", " tail"],
    "o": [" tick", " tock", " tack"],
}
TEXTS = {"p": "plain words, no more", "t": "a 😀 b 👩\u200d💻 中.", "x": "<tool_call>{}</tool_call> tail"}
CONTEXT = 16_384
SMALL = ("--dtype", "float32", "--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--kv-cache-memory-bytes", "24M")
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


def write_model(folder: Path) -> Path:
    """The scripts; "o" never ends."""
    write(folder, SCRIPTS, loops="o", context=CONTEXT)
    return folder


def octavo(*words: str) -> list[str]:
    return [sys.executable, "-m", "octavo.cli.main", *words]


class RealServer:
    """`octavo serve` with `words` behind it. wait_ready() gives its url; close() ends it whatever its state.

    wrapper: a command that runs the command after it, for limits. shared: a temporary folder that several servers have in common.
    """

    def __init__(self, model: Path, *words: str, wrapper: tuple[str, ...] = (), shared: Path | None = None, **environment: str) -> None:
        self.is_mine = shared is None
        self.folder = shared or Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
        variables = os.environ | {"TMPDIR": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder), "PYTHONUNBUFFERED": "1"} | environment
        command = [*wrapper, *octavo("serve", str(model), "--port", "0", "--served-model-name", "scripted", *words)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.url = ""
        self.lines: list[str] = []
        self.children: list[psutil.Process] = []
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.match(r"  URL +(https?://\S+)/v1( at unix:.*)?$", line):
                self.url = found[1]
            elif line.startswith("{") and (found := re.search(r"ready at (http://[^\"]+)", line)):
                self.url = found[1]
                self._is_ready.set()
            if line.startswith("  try "):
                self._is_ready.set()
        self._is_ready.set()

    @property
    def log(self) -> str:
        return "".join(self.lines)

    @property
    def faults(self) -> str:
        """The log from its first traceback, or from a warning of the interpreter, on; empty if there is none."""
        found = re.search(r"Traceback|never awaited|was never retrieved|RuntimeWarning", self.log)
        return self.log[max(0, found.start() - 300) : found.start() + 6000] if found is not None else ""

    def wait_ready(self, timeout_s: float = 120) -> "RealServer":
        assert self._is_ready.wait(timeout_s), self.log
        assert self.url, self.log
        self.children = psutil.Process(self.process.pid).children(recursive=True)
        assert len(self.children) == 2, self.children
        return self

    def child(self, target: str, timeout_s: float = 120) -> psutil.Process:
        """The process of the engine core (engine.process) or of the worker (worker.process), once there is one."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and self.process.poll() is None:
            for each in psutil.Process(self.process.pid).children(recursive=True):
                if target in each.cmdline():
                    return each
            select.select([], [], [], 0.01)
        raise AssertionError(f"there is no {target}\n{self.log}")

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60)

    def events(self, path: str, **body: Any) -> list[Any]:
        """The events of a whole stream."""
        response = self.post(path, stream=True, **body)
        assert response.status_code == 200, response.text
        return parse_events(response.text)

    def metric(self, name: str) -> float:
        """A series without labels of its own."""
        found = re.search(rf"^vllm:{name}\{{[^}}]*\}} (\S+)$", httpx.get(f"{self.url}/metrics", timeout=20).text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def wait_idle(self, timeout_s: float = 20) -> None:
        """Until no request runs or waits and no block is held."""
        end = time.monotonic() + timeout_s
        while any(values := [self.metric(name) for name in GAUGES]):
            assert time.monotonic() < end, values
            select.select([], [], [], 0.01)

    def wait_end(self, timeout_s: float = 40) -> int:
        """The exit code, when the server and all that it started have ended."""
        code = self.process.wait(timeout_s)
        wait_for_end([child.pid for child in self.children])
        self._reader.join(10)
        return code

    def left_over(self) -> list[str]:
        """What is in the temporary folder."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.wait_end()
        assert self.process.stdout is not None
        self.process.stdout.close()
        if self.is_mine:
            shutil.rmtree(self.folder)


def wait_for_end(pids: list[int], timeout_s: float = 15) -> None:
    """Until the processes are gone, whoever their parent is."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], timeout_s)[0], f"process {pid} is still there"
        finally:
            os.close(descriptor)


class Reading(threading.Thread):
    """A request that is read on a thread of its own; `began` is set with its first bytes."""

    def __init__(self, url: str, path: str = "/v1/chat/completions", **body: Any) -> None:
        super().__init__(daemon=True)
        self._request = (url + path, {"messages": [{"role": "user", "content": "say o"}], "prompt": "say o"} | body)
        self.began = threading.Event()
        self.status = 0
        self.text = ""
        self.broken: httpx.TransportError | None = None  # the connection ended before the answer did
        self.start()

    def run(self) -> None:
        url, body = self._request
        try:
            with httpx.stream("POST", url, json=body, timeout=60) as response:
                self.status = response.status_code
                for part in response.iter_text():
                    self.text += part
                    self.began.set()
        except httpx.TransportError as error:
            self.broken = error

    @property
    def events(self) -> list[Any]:
        """All of them, when the request has ended."""
        self.join(60)
        assert not self.is_alive()
        return parse_events(self.text)
