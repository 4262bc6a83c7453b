"""Reports of kind Q: what an operator sees of a server: its health, its end, its exit code, its counters, its doors."""

import asyncio
import re
import select
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.reports.servers import CHAT, COMPLETIONS, SMALL, Server, joined, says, serving
from tests.reports.servers2 import client_of, counts, gauges, leave_stream, polled, total
from tests.server.real_server import Reading, wait_for_end

LONG = {"max_tokens": 900, "ignore_eos": True, "temperature": 0}
TEXT = " tick tock tack"
TOLD_S = 15.0  # within which everybody is told of a process that stands still
ENVIRONMENT = {"OCTAVO_ENGINE_PULSE_TIMEOUT_S": "3"}


@dataclass
class End:
    """What was seen of a server that met its end while three streams and one whole request were open."""

    server: Server
    streams: list[Reading] = field(default_factory=list)
    whole: Reading | None = None
    late: list[httpx.Response] = field(default_factory=list)
    told_after_s: float = 0.0
    ended_after_s: float = 0.0
    code: int = 0
    left_over: list[str] = field(default_factory=list)

    def begin(self, **body: Any) -> None:
        url = self.server.url
        self.streams = [Reading(url, path, **LONG | body, stream=True) for path in (CHAT, COMPLETIONS, CHAT)]
        self.whole = Reading(url, COMPLETIONS, **LONG | body)
        assert all(stream.began.wait(60) for stream in self.streams)
        while gauges(self.server)[0] < 4:
            continue

    def finish(self, since: float) -> "End":
        self.code = self.server.wait_end(60)
        self.ended_after_s = time.monotonic() - since
        for reading in (*self.streams, self.whole):
            assert reading is not None
            reading.join(60)
        self.left_over = self.server.left_over()
        return self


def hurt(target: str, number: signal.Signals) -> Callable[[Server], End]:
    """A process of the engine is sent a signal behind the server's back."""

    def end(server: Server) -> End:
        seen = End(server)
        seen.begin()
        start = time.monotonic()
        server.child(target).send_signal(number)
        while httpx.get(f"{server.url}/health", timeout=30).status_code != 503:
            assert time.monotonic() - start < 2 * TOLD_S
        seen.told_after_s = time.monotonic() - start
        seen.late.append(httpx.post(server.url + COMPLETIONS, json={"prompt": "p"}, timeout=30))
        return seen.finish(start)

    return end


def terminate(*pauses_s: float, **body: Any) -> Callable[[Server], End]:
    """SIGTERM, and again after each of the pauses."""

    def end(server: Server) -> End:
        seen = End(server)
        seen.begin(**body)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        for pause in pauses_s:
            select.select([], [], [], pause)
            server.process.send_signal(signal.SIGTERM)
        if not pauses_s and body:
            while httpx.get(f"{server.url}/ready", timeout=30).status_code == 200:
                continue
            seen.late += [httpx.post(server.url + path, json={"prompt": "p", "messages": says("p")}) for path in (CHAT, COMPLETIONS)]
        return seen.finish(start)

    return end


ENDS: dict[str, tuple[Callable[[Server], End], tuple[str, ...]]] = {
    "stopped core": (hurt("engine.process", signal.SIGSTOP), ()),
    "not drained": (terminate(), ("--shutdown-timeout", "0", "--host", "0.0.0.0")),
    "twice": (terminate(0.1), ()),
}
SLOW_ENDS: dict[str, tuple[Callable[[Server], End], tuple[str, ...]]] = {
    "stopped worker": (hurt("worker.process", signal.SIGSTOP), ()),
    "killed core": (hurt("engine.process", signal.SIGKILL), ()),
    "drained": (terminate(max_tokens=500), ()),
    "killed worker": (hurt("worker.process", signal.SIGKILL), ()),
}
HURT = ["stopped core", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_ENDS if name != "drained")]


def meet_all(model: Path, ends: dict[str, tuple[Callable[[Server], End], tuple[str, ...]]]) -> dict[str, End]:
    """All of them at the same time."""
    servers = {name: Server(model, *SMALL, "--cpu-threads", "1", *words, **ENVIRONMENT) for name, (_, words) in ends.items()}
    try:
        for server in servers.values():
            server.wait_ready()
        with ThreadPoolExecutor(len(ends)) as pool:
            seen = {name: pool.submit(end, servers[name]) for name, (end, _) in ends.items()}
        return {name: future.result() for name, future in seen.items()}
    finally:
        for server in servers.values():
            server.close()


@pytest.fixture(scope="module")
def ends(scripted_model: Path) -> Callable[[str], End]:
    """What was seen of an end. Each of the two groups meets its ends once, if anybody asks."""
    met: dict[str, End] = {}

    def of(name: str) -> End:
        if name not in met:
            met.update(meet_all(scripted_model, ENDS if name in ENDS else SLOW_ENDS))
        return met[name]

    return of


# F4 is seen here too, since it takes a server's life


@pytest.mark.parametrize("how", HURT)
def test_f4_a_failure_within_is_no_answer_of_200(ends: Callable[[str], End], how: str) -> None:
    whole = ends(how).whole
    assert whole is not None
    assert whole.status == 500
    assert '"error"' in whole.text
    for stream in ends(how).streams:
        assert stream.events[-1] == "[DONE]"
        assert stream.events[-2]["error"]["code"] == 500


@pytest.mark.parametrize("how", HURT)
def test_q1_health_tells_of_an_engine_that_is_dead_or_stands_still(ends: Callable[[str], End], how: str) -> None:
    end = ends(how)
    assert end.told_after_s < (2 if how.startswith("killed") else TOLD_S)
    assert end.late[0].status_code in (500, 503)
    assert end.code == 1
    assert not end.server.faults


@pytest.mark.slow
def test_q2_a_server_that_is_told_to_end_finishes_what_it_has(ends: Callable[[str], End]) -> None:
    end = ends("drained")
    assert [response.status_code for response in end.late] == [503, 503]
    assert all(response.headers["retry-after"] for response in end.late)
    for stream in end.streams:
        assert stream.events[-1] == "[DONE]"
        assert joined(stream.events[:-1]) == (TEXT * 167)[: len(TEXT * 166 + " tick tock")]
    assert end.whole is not None
    assert end.whole.status == 200
    assert end.code == 0


def test_q2_a_server_that_may_not_drain_ends_what_it_has_with_an_error(ends: Callable[[str], End]) -> None:
    end = ends("not drained")
    assert end.ended_after_s < 10
    for stream in end.streams:
        assert stream.broken is None
        assert stream.events[-1] == "[DONE]"
        assert stream.events[-2]["error"]["code"] == 503
    assert end.whole is not None
    assert (end.whole.status, end.whole.broken) == (503, None)
    assert end.code == 0


def test_q4_a_second_sigterm_ends_it_at_once_and_cleanly(ends: Callable[[str], End]) -> None:
    end = ends("twice")
    assert end.code == 130
    assert end.ended_after_s < 10
    assert [reading.broken for reading in end.streams] == [None] * 3


@pytest.mark.parametrize("how", [*ENDS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_ENDS)])
def test_q4_whatever_the_end_nothing_is_left(ends: Callable[[str], End], how: str) -> None:
    """finish() has waited for every process."""
    assert ends(how).left_over == []
    assert not ends(how).server.faults
    with socket.socket() as probe:  # its port is free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(ends(how).server.url.rsplit(":", 1)[1])))


@pytest.mark.slow
def test_q3_an_interrupt_at_any_moment_of_the_start_leaves_no_process(scripted_model: Path) -> None:
    """Before it listens, while it resolves, when the core is there, when the worker is there, while the model loads."""

    def start_and_interrupt(moment: int) -> tuple[int, list[str], list[str]]:
        server = Server(scripted_model, *SMALL, "--cpu-threads", "1")
        try:
            if moment == 0:
                select.select([], [], [], 0.3)  # somewhere in its imports
            elif moment in (1, 2):
                server.child(("engine.process", "worker.process")[moment - 1])
            elif moment == 3:
                server.child("worker.process")
                select.select([], [], [], 1.0)
            started = [child.pid for child in psutil.Process(server.process.pid).children(recursive=True)]
            server.process.send_signal(signal.SIGINT)
            code = server.process.wait(40)
            wait_for_end(started)
            server._reader.join(10)
            return code, server.left_over(), re.findall("Traceback", server.log)
        finally:
            server.close()

    with ThreadPoolExecutor(4) as pool:
        for code, left_over, faults in pool.map(start_and_interrupt, range(4)):
            assert code in (130, -signal.SIGINT)  # the latter before any of our code runs
            assert (left_over, faults) == ([], [])


def sums(server: Server) -> dict[str, float]:
    names = ("prompt_tokens_total", "generation_tokens_total", "request_prompt_tokens_sum", "request_generation_tokens_sum")
    names += ("request_prompt_tokens_count", "request_generation_tokens_count", "e2e_request_latency_seconds_count")
    return {name: total(server, f"vllm:{name}") for name in (*names, "request_success_total", "prompt_tokens_cached_total")}


async def test_q5_counters_add_up_with_aborted_requests_too(scripted: Server) -> None:
    """Every request that ends, however it does, is counted once in each of the histograms of requests."""
    scripted.wait_idle()
    before, by_reason = sums(scripted), counts(scripted, "vllm:request_success_total")
    async with client_of(scripted) as http:
        await asyncio.gather(
            *(http.post(COMPLETIONS, json={"prompt": f"q5 {n} p", "temperature": 0}) for n in range(10)),
            *(leave_stream(http, COMPLETIONS, {"prompt": f"q5 {n} o", "max_tokens": 900}, 3) for n in range(5)),
        )
    scripted.wait_idle()
    grown = {name: value - before[name] for name, value in sums(scripted).items()}
    reasons = {key: value - by_reason.get(key, 0) for key, value in counts(scripted, "vllm:request_success_total").items()}
    assert {key: value for key, value in reasons.items() if value} == {'finished_reason="stop"': 10, 'finished_reason="abort"': 5}
    assert grown["request_success_total"] == 15
    for name in ("request_prompt_tokens_count", "request_generation_tokens_count", "e2e_request_latency_seconds_count"):
        assert grown[name] == 15
    assert grown["request_prompt_tokens_sum"] == 15 * len("q5 0 p")
    assert grown["prompt_tokens_total"] == 15 * len("q5 0 p")
    # the tokens of an aborted request's last steps may have been on their way when it ended
    assert 0 <= grown["generation_tokens_total"] - grown["request_generation_tokens_sum"] <= 5 * 64


ROUTES = [
    "/v1/models",
    "/v1/models/scripted",
    CHAT,
    COMPLETIONS,
    "/v1/chat/completions/batch",
    "/v1/anything",
    "/v1",
    "/v1/",
    "//v1/models",
]
OPEN = ["/health", "/ready", "/version", "/ping"]
OTHERS = ["/metrics", "/tokenize", "/detokenize", "/invocations", "/load", "/docs", "/openapi.json", "/redoc", "/anything"]


@pytest.mark.parametrize("guards_all", [pytest.param(False, marks=pytest.mark.slow), True], ids=["v1", "all"])
def test_q6_no_route_is_open_that_should_not_be(scripted_model: Path, guards_all: bool) -> None:
    words = ("--api-key", "secret", "--cpu-threads", "1") + (("--guard-all-endpoints",) if guards_all else ())
    with serving(scripted_model, *SMALL, *words) as server:
        described = server.http.get(server.url + "/openapi.json", headers={"authorization": "Bearer secret"}).json()["paths"]
        paths = sorted({*ROUTES, *OTHERS, *OPEN, *(path for path in described if "{" not in path)})
        for path in paths:
            is_guarded = (guards_all and path not in OPEN) or path.startswith(("/v1", "/v2", "/inference", "/cohere"))
            for method in ("GET", "POST", "PUT"):
                statuses = {
                    key: server.http.request(method, server.url + path, headers={"authorization": key} if key else {}).status_code
                    for key in (None, "Bearer wrong", "secret", "Basic secret", "Bearer secret")
                }
                assert statuses.pop("Bearer secret") != 401, (method, path)
                assert set(statuses.values()) == {401} if is_guarded else 401 not in statuses.values(), (method, path, statuses)
        assert server.http.get(server.url + "/health").status_code == 200
        assert "secret" not in server.log


async def test_q7_health_is_quick_under_a_thousand_calls(scripted: Server) -> None:
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=scripted.url, timeout=120, limits=limits) as http, polled(scripted, 0.02) as health:
        calls = [http.post(COMPLETIONS, json={"prompt": f"{n} p", "temperature": 0}) for n in range(1000)]
        responses = await asyncio.gather(*calls)
    assert {(response.status_code, response.json()["choices"][0]["text"]) for response in responses} == {(200, "plain words, no more")}
    assert health.p99_s < 1


def test_q8_it_listens_on_this_machine_only_unless_told(scripted: Server, ends: Callable[[str], End]) -> None:
    listening = [c.laddr for c in psutil.Process(scripted.process.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening] == ["127.0.0.1"]
    warning = "everyone who reaches this machine can use the server: pass --api-key"
    assert warning in ends("not drained").server.log  # which was told --host 0.0.0.0
    assert warning not in scripted.log


async def test_q9_gauges_go_down_when_all_have_left(scripted: Server) -> None:
    async with client_of(scripted) as http:
        bodies = [{"prompt": f"q9 {n} o", "max_tokens": 900} for n in range(20)]
        await asyncio.gather(*(leave_stream(http, COMPLETIONS, body, 3) for body in bodies))
    scripted.wait_idle()
    assert gauges(scripted) == [0, 0, 0]
    assert total(scripted, "vllm:num_requests_running") == 0
