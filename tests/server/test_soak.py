"""Long use leaves nothing behind: neither streams that were cut nor thousands of short requests."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import psutil
import pytest

from tests.server import fuzzed_server
from tests.server.real_server import TEXTS, RealServer
from tests.server.serving import parse_events

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
STREAMS, SHORT, WARM_UP = 500, 10_000, 4_000
AT_ONCE = 16
GROWTH = 0.05


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Its cache is small, so that all of it is soon resident."""
    server = fuzzed_server.start(tmp_path_factory.mktemp("script"), "--kv-cache-memory-bytes", "4M")
    try:
        yield server.wait_ready()
    finally:
        server.close()


@asynccontextmanager
async def client(server: RealServer) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=AT_ONCE, keepalive_expiry=2)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as http:
        yield http


def body(rng: random.Random, key: str) -> dict[str, Any]:
    text = f"{rng.randrange(10**6)} {key}"
    return {"messages": [{"role": "user", "content": text}], "prompt": text, "temperature": 0}


async def test_streams_that_are_cut_leave_nothing(server: RealServer) -> None:
    rng = random.Random(1)
    numbers = iter(range(STREAMS))
    async with client(server) as http:

        async def cut_some() -> None:
            for _ in numbers:
                path, left = rng.choice((CHAT, COMPLETIONS)), rng.choice((0, 0, 1, 3, 10, 40))
                asked = body(rng, "o") | {"stream": True, "max_tokens": 150, "n": 1}
                if rng.random() < 0.3:
                    asked |= {"n": 2, "temperature": 1.0}
                async with http.stream("POST", path, json=asked) as response:
                    if rng.random() < 0.9:
                        async for _ in response.aiter_raw():
                            left -= 1
                            if left < 0:
                                break

        await asyncio.gather(*(cut_some() for _ in range(AT_ONCE)))
    server.wait_idle()
    assert server.post(CHAT, messages=[{"role": "user", "content": "t"}]).json()["choices"][0]["message"]["content"] == TEXTS["t"]
    server.wait_idle()
    assert not server.faults


async def test_memory_does_not_grow(server: RealServer, record_property: Any) -> None:
    """The resident memory of each of the three processes."""
    processes = {"server": psutil.Process(server.process.pid)}
    processes |= {name: server.child(f"{name}.process") for name in ("engine", "worker")}

    def resident() -> dict[str, int]:
        return {name: process.memory_info().rss for name, process in processes.items()}

    async with client(server) as http:
        await ask(http, WARM_UP, random.Random(2))
        before = resident()
        await ask(http, SHORT, random.Random(3))
        after = resident()
    server.wait_idle()
    growth = {name: after[name] / before[name] - 1 for name in processes}
    figures = ", ".join(f"{name} {before[name] / 2**20:.1f} -> {after[name] / 2**20:.1f} MiB ({growth[name]:+.2%})" for name in processes)
    record_property("resident", figures)
    print(figures)
    assert max(growth.values()) <= GROWTH, figures
    assert not server.faults


async def ask(http: httpx.AsyncClient, count: int, rng: random.Random) -> None:
    """So many short requests, whole and streamed, answered as they must be."""
    numbers = iter(range(count))

    async def ask_some() -> None:
        for number in numbers:
            key = "ptx"[number % 3]
            path = (CHAT, COMPLETIONS)[number // 3 % 2]
            streamed = number % 4 == 0
            response = await http.post(path, json=body(rng, key) | {"stream": streamed})
            assert response.status_code == 200, response.text
            assert said(response, streamed) == TEXTS[key]

    await asyncio.gather(*(ask_some() for _ in range(AT_ONCE)))


def said(response: httpx.Response, streamed: bool) -> str:
    if not streamed:
        choice = response.json()["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])
    choices = [event["choices"][0] for event in parse_events(response.text)[:-1]]
    return "".join(choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices)
