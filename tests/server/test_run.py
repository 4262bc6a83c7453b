"""The server as a process: what it says while it loads, on signals, and when the engine dies."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.config.options import ServerOptions
from octavo.errors import ConfigError
from octavo.server.run import run
from tests.server.serving import parse_events

MESSAGES = [{"role": "user", "content": "hi"}]
LONG = {"messages": MESSAGES, "max_tokens": 150, "stream": True}
ROOT = Path(__file__).parents[2]


class Server:
    """A server process whose engine is scripted."""

    def __init__(self, folder: Path, timeout_s: float, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.scripted_server", "0", str(timeout_s), str(folder)],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://")

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def status(self, path: str) -> int:
        return httpx.get(self.url + path, timeout=20).status_code

    def until(self, path: str, status: int, limit_s: float = 20.0) -> float:
        """Seconds until `path` answers `status`."""
        start = time.monotonic()
        while self.status(path) != status:
            assert time.monotonic() - start < limit_s, f"{path} did not become {status}"
        return time.monotonic() - start

    def end(self) -> tuple[int, str]:
        """Exit code and standard error."""
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


class Reading(threading.Thread):
    """Reads a stream; `began` is set when its first event has come."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.began = threading.Event()
        self.events: list[Any] = []
        self.start()
        assert self.began.wait(20)

    def run(self) -> None:
        text = ""
        with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=LONG, timeout=30) as response:
            for part in response.iter_text():
                text += part
                self.began.set()
        self.events = parse_events(text)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Any]:
    started: list[Server] = []

    def start(timeout_s: float = 20.0, **environment: str) -> Server:
        started.append(Server(tmp_path, timeout_s, **environment))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


def test_probes_are_answered_while_the_model_loads_and_then_a_block_tells_how_to_begin(servers: Any) -> None:
    server = servers()
    assert [server.status(p) for p in ("/health", "/ready")] == [503, 503]
    server.tell("load")
    server.until("/ready", 200)
    assert server.status("/health") == 200
    server.process.send_signal(signal.SIGTERM)
    code, errors = server.end()
    assert code == 0
    assert "is ready" in errors
    assert f"curl {server.url}/v1/chat/completions" in errors
    assert "Traceback" not in errors


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_reason(servers: Any) -> None:
    server = servers()
    server.tell("fail")
    code, errors = server.end()
    assert code == 1
    assert "the model does not fit" in errors


def test_one_signal_lets_running_requests_finish(servers: Any) -> None:
    server = servers()
    server.tell("load")
    server.until("/ready", 200)
    reading = Reading(server.url)
    server.process.send_signal(signal.SIGTERM)
    server.until("/ready", 503)
    assert server.status("/health") == 200
    assert httpx.post(f"{server.url}/v1/chat/completions", json={"messages": MESSAGES}).status_code == 503
    code, errors = server.end()
    reading.join(20)
    assert code == 0
    assert "finishing 1 requests" in errors
    assert reading.events[-1] == "[DONE]"
    assert reading.events[-2]["choices"][0]["finish_reason"] == "length"
    assert "Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_does_not_finish_in_time_ends_with_an_error_event(servers: Any, number: signal.Signals) -> None:
    server = servers(timeout_s=0.1)
    server.tell("load")
    server.until("/ready", 200)
    reading = Reading(server.url)
    server.process.send_signal(number)
    code, errors = server.end()
    reading.join(20)
    assert code == 0
    assert reading.events[-2]["error"]["code"] == 503
    assert reading.events[-1] == "[DONE]"
    assert "Traceback" not in errors


def test_two_signals_end_it_now(servers: Any) -> None:
    server = servers()
    server.tell("load")
    server.until("/ready", 200)
    reading = Reading(server.url)
    server.process.send_signal(signal.SIGINT)
    server.until("/ready", 503)
    start = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    code, errors = server.end()
    reading.join(20)
    assert code == 130
    assert time.monotonic() - start < 10
    assert "error" in reading.events[-2]
    assert "Traceback" not in errors


def test_a_signal_while_the_model_loads_ends_it(servers: Any) -> None:
    server = servers()
    assert server.status("/health") == 503
    server.process.send_signal(signal.SIGINT)
    code, errors = server.end()
    assert code == 130
    assert "Traceback" not in errors


def test_the_engine_s_death_is_told_to_streams_and_probes_and_ends_the_server(servers: Any) -> None:
    server = servers()
    server.tell("load")
    server.until("/ready", 200)
    reading = Reading(server.url)
    server.tell("die")
    assert server.until("/health", 503) < 2
    code, _ = server.end()
    reading.join(20)
    assert code == 1
    assert "signal 9" in reading.events[-2]["error"]["message"]


def test_a_server_may_be_told_to_outlive_its_engine(servers: Any) -> None:
    server = servers(OCTAVO_KEEP_ALIVE_ON_ENGINE_DEATH="1")
    server.tell("load")
    server.until("/ready", 200)
    server.tell("die")
    server.until("/health", 503)
    server.process.send_signal(signal.SIGTERM)
    code, errors = server.end()
    assert "the server stays" in errors
    assert code == 1


@pytest.mark.parametrize("kind", ["port", "path", "certificate", "middleware"])
def test_what_cannot_be_is_told_before_anything_is_loaded(tmp_path: Path, kind: str) -> None:
    async def start() -> Any:
        raise AssertionError("it is loaded")

    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_UNIX) as path:
        path.bind(str(tmp_path / "s.sock"))
        path.listen()
        options, message = {
            "port": (ServerOptions(port=taken.getsockname()[1]), "in use"),
            "path": (ServerOptions(uds=str(tmp_path / "s.sock")), "in use"),
            "certificate": (ServerOptions(port=0, ssl_certfile=str(tmp_path / "none.pem")), "cannot be read"),
            "middleware": (ServerOptions(port=0, middleware=["no.such.thing"]), "cannot be imported"),
        }[kind]
        with pytest.raises(ConfigError, match=message):
            run(options, start)
