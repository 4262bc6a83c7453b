"""Under load: probes are answered while prompts of megabytes are read, a thousand calls come at once, and a client reads nothing."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.server.raw import request
from tests.server.real_server import RealServer
from tests.server.serving import parse_events

ROOT = Path(__file__).parents[2]


class Probing:
    """A process asks for /health every 50 ms; longest_s is the longest time between two answers."""

    def __init__(self, url: str) -> None:
        self.longest_s = 0.0
        command = [sys.executable, "-m", "tests.server.prober", f"{url}/health"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "Probing":
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "probing\n"
        return self

    def __exit__(self, *_: object) -> None:
        told, _ = self._process.communicate(timeout=60)
        self.longest_s = float(told)
        print(f"longest time between two answers of /health: {self.longest_s:.3f} s")


def allowed_gap_s() -> float:
    """Half a second, on a machine that has a core for us; more where others keep the cores busy, in proportion."""
    return 0.5 * max(1.0, 2 * psutil.getloadavg()[0] / (psutil.cpu_count() or 1))


def test_F13_a_prompt_of_5_megabytes_does_not_silence_the_probes(real_server: RealServer) -> None:
    text = "All work and no play makes Jack a dull boy. " * 114_000
    bodies: tuple[tuple[str, Any], ...] = (
        ("/v1/completions", {"prompt": text}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * 110_000}),
        ("/v1/completions", {"prompt": [97] * 1_200_000}),
    )
    with Probing(real_server.url) as probing:
        for path, body in bodies:
            answer = httpx.post(real_server.url + path, content=json.dumps(body).encode(), timeout=120)
            assert answer.status_code == 400
            assert re.search("maximum context length|ran too long", answer.json()["error"]["message"])
    assert probing.longest_s < allowed_gap_s()


@pytest.mark.slow
async def test_Q7_a_thousand_calls_at_once_do_not_silence_the_probes(real_server: RealServer) -> None:
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
    with Probing(real_server.url) as probing:
        async with httpx.AsyncClient(timeout=120, limits=limits) as http:
            body = {"prompt": "say p", "max_tokens": 2}
            answers = await asyncio.gather(*(http.post(f"{real_server.url}/v1/completions", json=body) for _ in range(1000)))
    assert {answer.status_code for answer in answers} == {200}
    assert probing.longest_s < 2 * allowed_gap_s()


def test_a_client_that_reads_nothing_costs_its_own_text_once(real_server: RealServer) -> None:
    """What it did not take is merged, not queued: the answer is whole, in fewer events. Others are not held up."""
    parts = urlsplit(real_server.url)
    process = psutil.Process(real_server.process.pid)
    real_server.post("/v1/completions", prompt="say p")
    before = process.memory_info().rss
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((parts.hostname, parts.port))
        body = {"prompt": "say o", "max_tokens": 3000, "stream": True, "logprobs": 5}
        client.sendall(request("POST", "/v1/completions", "Connection: close", body=json.dumps(body).encode()))
        while real_server.metric("num_requests_running") == 0:
            continue
        assert real_server.post("/v1/completions", prompt="say p").status_code == 200
        real_server.wait_idle(120)
        assert process.memory_info().rss - before < 64 << 20
        received = bytearray()
        while part := client.recv(65536):
            received += part
    text = _unchunked(bytes(received).partition(b"\r\n\r\n")[2]).decode()
    events = parse_events(text)
    assert events[-1] == "[DONE]"
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == " tick tock tack" * 1000
    assert sum(len(event["choices"][0]["logprobs"]["tokens"]) for event in events[:-1] if event["choices"][0]["logprobs"]) == 3000
    assert len(events) < 3000


def _unchunked(data: bytes) -> bytes:
    found = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        found, data = found + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return found
