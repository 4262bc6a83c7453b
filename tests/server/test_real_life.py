"""Ends that service managers and accidents bring: killed while loading, a signal to every process, one that stands still, a socket's path.

The servers meet their ends at the same time, once; the tests look at what was seen.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from tests.server.real_server import SMALL, Reading, RealServer, write_model

LONG = {"stream": True, "max_tokens": 16_000}


@dataclass
class Life:
    """What was seen of a server."""

    code: int
    left_over: list[str]
    log: str
    faults: str
    seconds: float = 0.0
    streams: list[Reading] = field(default_factory=list)
    path_is_gone: bool = True


def end_of(server: RealServer, *streams: Reading, began: float = 0.0, path: Path | None = None) -> Life:
    code = server.wait_end()
    for stream in streams:
        stream.join(60)
    seconds = time.monotonic() - began if began else 0.0
    return Life(code, server.left_over(), server.log, server.faults, seconds, list(streams), path is None or not path.exists())


def remember_children(server: RealServer) -> None:
    """wait_end() waits for them, whoever their parent is by then."""
    server.children = psutil.Process(server.process.pid).children(recursive=True)


def kill_while_loading(target: str) -> Callable[[RealServer], Life]:
    def run(server: RealServer) -> Life:
        victim = server.child(target) if target else None
        if victim is None:
            server.child("engine.process")
        remember_children(server)
        os.kill(server.process.pid if victim is None else victim.pid, signal.SIGKILL)
        return end_of(server)

    return run


def terminate_everybody(server: RealServer) -> Life:
    """As systemd does it: each process of the service gets the signal."""
    server.wait_ready()
    stream = Reading(server.url, stream=True, max_tokens=1200)
    assert stream.began.wait(30)
    for process in [*server.children, psutil.Process(server.process.pid), *server.children]:
        process.send_signal(signal.SIGTERM)
    return end_of(server, stream)


def stop(target: str) -> Callable[[RealServer], Life]:
    def run(server: RealServer) -> Life:
        server.wait_ready()
        stream, whole = Reading(server.url, **LONG), Reading(server.url, max_tokens=16_000)
        assert stream.began.wait(30)
        began = time.monotonic()
        os.kill(server.child(target).pid, signal.SIGSTOP)
        while httpx.get(f"{server.url}/health", timeout=20).status_code != 503:
            assert time.monotonic() - began < 30
        return end_of(server, stream, whole, began=began)

    return run


def kill_at_a_path(server: RealServer) -> Life:
    path = server.folder / "s.sock"
    server.wait_ready()
    transport = httpx.HTTPTransport(uds=str(path))
    with httpx.Client(transport=transport, base_url="http://localhost") as client:
        assert client.get("/health").status_code == 200
        assert client.post("/v1/completions", json={"prompt": "say p"}).json()["choices"][0]["text"] == "plain words, no more"
    server.process.kill()
    return end_of(server, path=path)


LIVES: dict[str, tuple[Callable[[RealServer], Life], tuple[str, ...]]] = {
    "server loads": (kill_while_loading(""), ()),
    "core loads": (kill_while_loading("engine.process"), ()),
    "worker loads": (kill_while_loading("worker.process"), ()),
    "everybody": (terminate_everybody, ()),
    "worker stands": (stop("worker.process"), ()),
    "path": (kill_at_a_path, ("--uds", "{folder}/s.sock")),
}


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Life]]:
    model = write_model(tmp_path_factory.mktemp("script"))
    servers: dict[str, RealServer] = {}
    try:
        for name, (_, words) in LIVES.items():
            folder = tmp_path_factory.mktemp("t")
            more = [word.format(folder=folder) for word in words]
            servers[name] = RealServer(model, *SMALL, "--cpu-threads", "1", *more, shared=folder, OCTAVO_ENGINE_PULSE_TIMEOUT_S="2")
        with ThreadPoolExecutor(len(LIVES)) as pool:
            seen = {name: pool.submit(LIVES[name][0], servers[name]) for name in LIVES}
        yield {name: future.result() for name, future in seen.items()}
    finally:
        for server in servers.values():
            server.close()


@pytest.mark.parametrize("name", LIVES)
def test_nothing_is_left_behind(lives: dict[str, Life], name: str) -> None:
    """wait_end() has waited for every process."""
    life = lives[name]
    assert life.left_over == []
    assert life.path_is_gone
    assert not life.faults


@pytest.mark.parametrize(("name", "code"), [("server loads", -9), ("core loads", 1), ("worker loads", 1)])
def test_a_process_that_is_killed_while_the_model_loads(lives: dict[str, Life], name: str, code: int) -> None:
    life = lives[name]
    assert life.code == code
    if code == 1:
        assert re.search(r"process \d+ was killed by SIGKILL while it was loading", life.log)


def test_a_signal_to_every_process_drains_as_one_to_the_server_does(lives: dict[str, Life]) -> None:
    life = lives["everybody"]
    events = life.streams[0].events
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert life.code == 0


def test_Q1_a_process_that_stands_still_is_as_dead(lives: dict[str, Life]) -> None:
    life = lives["worker stands"]
    assert life.code == 1
    assert "has given no sign of life for 2 s, and is killed" in life.log
    stream, whole = life.streams
    assert (stream.events[-2]["error"]["code"], stream.events[-1]) == (500, "[DONE]")
    assert whole.status == 500


def test_a_killed_server_s_path_is_removed_by_what_outlives_it(lives: dict[str, Life]) -> None:
    life = lives["path"]
    assert life.code == -9
    assert "URL          http://localhost/v1 at unix:" in life.log
    assert "curl --unix-socket " in life.log
