"""Every way in which a real server ends: a process killed, a signal, a drain. Open requests are told, and nothing is left behind.

Six servers meet their ends at the same time, once; the tests look at what was seen.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.real_server import SMALL, TEXTS, Reading, RealServer, write_model

LONG = {"stream": True, "max_tokens": 16_000}
FINISHES = {"stream": True, "max_tokens": 1500}


@dataclass
class End:
    """What was seen of a server's end."""

    server: RealServer
    killed_pid: int = 0
    streams: list[Reading] = field(default_factory=list)
    whole: Reading | None = None
    unhealthy_after_s: float = 0.0
    ready_status: int = 0
    late: httpx.Response | None = None
    code: int = 0
    left_over: list[str] = field(default_factory=list)
    maps: str = ""  # of all processes, while they lived

    @property
    def readings(self) -> list[Reading]:
        return self.streams if self.whole is None else [*self.streams, self.whole]

    def begin(self, **body: Any) -> None:
        """Two streams and one request that is not streamed, all of them running."""
        self.streams = [Reading(self.server.url, path, **body) for path in ("/v1/chat/completions", "/v1/completions")]
        self.whole = Reading(self.server.url, **body | {"stream": False})
        assert all(stream.began.wait(30) for stream in self.streams)
        while self.server.metric("num_requests_running") < 3:
            continue
        pids = [self.server.process.pid, *(child.pid for child in self.server.children)]
        self.maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in pids)

    def finish(self) -> "End":
        self.code = self.server.wait_end()
        for reading in self.readings:
            reading.join(60)
        self.left_over = self.server.left_over()
        return self


def kill_child(target: str) -> Callable[[RealServer], End]:
    def end(server: RealServer) -> End:
        seen = End(server, killed_pid=server.child(target).pid)
        seen.begin(**LONG)
        os.kill(seen.killed_pid, signal.SIGKILL)
        start = time.monotonic()
        while httpx.get(f"{server.url}/health", timeout=20).status_code != 503:
            assert time.monotonic() - start < 20
        seen.unhealthy_after_s = time.monotonic() - start
        seen.late = server.post("/v1/completions", prompt="say p")
        return seen.finish()

    return end


def kill_server(server: RealServer) -> End:
    seen = End(server, killed_pid=server.process.pid)
    seen.begin(**LONG)
    server.process.kill()
    return seen.finish()


def terminate(server: RealServer) -> End:
    seen = End(server)
    seen.begin(**FINISHES)
    server.process.send_signal(signal.SIGTERM)
    while (status := httpx.get(f"{server.url}/ready", timeout=20).status_code) == 200:
        continue
    seen.ready_status = status
    seen.late = server.post("/v1/completions", prompt="say p")
    return seen.finish()


def kill_core_while_draining(server: RealServer) -> End:
    seen = End(server, killed_pid=server.child("engine.process").pid)
    seen.begin(**LONG)
    server.process.send_signal(signal.SIGTERM)
    while httpx.get(f"{server.url}/ready", timeout=20).status_code == 200:
        continue
    os.kill(seen.killed_pid, signal.SIGKILL)
    return seen.finish()


def interrupt_twice(server: RealServer) -> End:
    seen = End(server)
    seen.begin(**LONG)
    server.process.send_signal(signal.SIGINT)
    while httpx.get(f"{server.url}/ready", timeout=20).status_code == 200:
        continue
    server.process.send_signal(signal.SIGINT)
    return seen.finish()


ENDS: dict[str, Callable[[RealServer], End]] = {
    "core": kill_child("engine.process"),
    "worker": kill_child("worker.process"),
    "server": kill_server,
    "terminated": terminate,
    "interrupted": interrupt_twice,
    "drained": kill_core_while_draining,
}


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, End]]:
    model = write_model(tmp_path_factory.mktemp("script"))
    servers = {name: RealServer(model, *SMALL, "--cpu-threads", "1") for name in ENDS}
    try:
        for server in servers.values():
            server.wait_ready()
        with ThreadPoolExecutor(len(ENDS)) as pool:
            seen = {name: pool.submit(end, servers[name]) for name, end in ENDS.items()}
        yield {name: future.result() for name, future in seen.items()}
    finally:
        for server in servers.values():
            server.close()


@pytest.mark.parametrize("victim", ["core", "worker"])
def test_the_death_of_an_engine_process_is_told_to_everyone(ends: dict[str, End], victim: str) -> None:
    end = ends[victim]
    assert end.unhealthy_after_s < 2
    for stream in end.streams:
        assert stream.status == 200
        assert stream.events[-1] == "[DONE]"
        error = stream.events[-2]["error"]
        assert error["code"] == 500
        assert f"process {end.killed_pid} was killed by SIGKILL" in error["message"]
    assert end.whole is not None
    assert (end.whole.status, "was killed by SIGKILL" in end.whole.text) == (500, True)
    assert end.late is not None
    assert (end.late.status_code, "died" in end.late.text) == (500, True)
    assert end.code == 1
    assert f"process {end.killed_pid} was killed by SIGKILL" in end.server.log
    assert not end.server.faults


def test_the_end_of_a_killed_server_is_the_end_of_its_children(ends: dict[str, End]) -> None:
    end = ends["server"]  # finish() waits for the children
    assert end.code == -signal.SIGKILL
    assert len(end.server.children) == 2
    assert all(reading.broken for reading in end.readings)


def test_a_terminated_server_finishes_what_runs_and_takes_nothing_new(ends: dict[str, End]) -> None:
    end = ends["terminated"]
    for stream in end.streams:
        events = stream.events
        assert events[-1] == "[DONE]"
        text = "".join(e["choices"][0].get("text") or e["choices"][0].get("delta", {}).get("content", "") for e in events[:-1])
        assert text == " tick tock tack" * 500
        assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert end.whole is not None
    assert (end.whole.status, " tick tock tack" * 500 in end.whole.text) == (200, True)
    assert end.ready_status == 503
    assert end.late is not None
    assert (end.late.status_code, end.late.headers["retry-after"]) == (503, "1")
    assert end.code == 0
    assert "finishing 3 requests" in end.server.log
    assert not end.server.faults


def test_a_server_that_is_interrupted_twice_ends_at_once(ends: dict[str, End]) -> None:
    end = ends["interrupted"]
    assert end.code == 130
    assert [reading.broken for reading in end.readings] == [None] * 3
    assert all(stream.events[-2]["error"]["code"] == 503 for stream in end.streams)
    assert end.whole is not None
    assert end.whole.status == 503
    assert not end.server.faults


def test_an_engine_that_dies_while_the_server_drains_is_a_failure(ends: dict[str, End]) -> None:
    end = ends["drained"]
    assert end.code == 1
    assert [reading.broken for reading in end.readings] == [None] * 3
    assert all("was killed by SIGKILL" in stream.events[-2]["error"]["message"] for stream in end.streams)
    assert not end.server.faults


@pytest.mark.parametrize("name", ENDS)
def test_nothing_is_left_behind(ends: dict[str, End], name: str) -> None:
    """No process (finish() has waited for all), no socket, no file, no shared memory."""
    assert ends[name].left_over == []
    assert "/dev/shm" not in ends[name].maps
    assert "/SYSV" not in ends[name].maps


def test_a_later_server_starts_where_others_were_killed(ends: dict[str, End], tmp_path: Path) -> None:
    server = RealServer(write_model(tmp_path), *SMALL, shared=ends["worker"].server.folder)
    try:
        server.wait_ready()
        assert server.post("/v1/completions", prompt="say p").json()["choices"][0]["text"] == TEXTS["p"]
    finally:
        server.process.send_signal(signal.SIGTERM)
        code = server.wait_end()
        server.close()
    assert code == 0
    assert server.left_over() == []
