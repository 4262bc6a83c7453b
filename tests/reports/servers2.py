"""Further servers of the report tests, and what a client does who leaves."""

import asyncio
import contextlib
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.reports.servers import CHAT, COMPLETIONS, Server, says
from tests.server.real_server import GAUGES

CROWD = 24  # connections at a time

# eight rows of up to 512 tokens, and blocks for 560 tokens of them together
TIGHT = ("--dtype", "float32", "--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--block-size", "16", "--max-model-len", "512")
TIGHT = (*TIGHT, "--num-gpu-blocks-override", "36", "--generation-config", "vllm")

_POLL = """
import http.client, select, sys, time
host, pause_s = sys.argv[1], float(sys.argv[2])
times, gaps, last = [], [], time.monotonic()
while not times or not select.select([sys.stdin], [], [], pause_s)[0]:
    start = time.monotonic()
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()
    now = time.monotonic()
    times.append(now - start)
    gaps.append(now - last)
    last = now
    if len(times) == 1:
        print("began", flush=True)
print(sorted(times)[int(0.99 * len(times))], max(gaps[1:], default=0))
"""


@dataclass
class Health:
    """How long answers of /health took, 99 of 100 of them, and the longest time between two of them."""

    p99_s: float = 0.0
    longest_gap_s: float = 0.0


@contextlib.asynccontextmanager
async def polled(server: Server, pause_s: float) -> AsyncIterator[Health]:
    """Ask for /health until the block ends, in a process of its own: a client of many or large requests is slow itself."""
    seen = Health()
    command = [sys.executable, "-c", _POLL, server.url.removeprefix("http://"), str(pause_s)]
    polling = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert polling.stdout is not None
    assert await polling.stdout.readline() == b"began\n"
    yield seen
    told, _ = await polling.communicate(b"end\n")
    assert polling.returncode == 0
    seen.p99_s, seen.longest_gap_s = map(float, told.split())


@contextlib.asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=CROWD)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as http:
        yield http


async def leave_stream(http: httpx.AsyncClient, path: str, body: dict[str, Any], after: int) -> None:
    """Leave a stream when so many parts have come."""
    async with http.stream("POST", path, json=body | {"stream": True}) as response:
        assert response.status_code == 200
        async for _ in response.aiter_text():
            after -= 1
            if after < 0:
                return


async def leave_after(http: httpx.AsyncClient, path: str, body: dict[str, Any], seconds: float) -> None:
    """Leave after a time, wherever the request is by then."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await http.post(path, json=body)


async def leave_at_random(http: httpx.AsyncClient, number: int, rng: random.Random) -> None:
    """One client who leaves a long answer: after some parts, or after some time."""
    body = {"messages": says("o", f"{number}"), "prompt": f"{number} o" * rng.randint(1, 60), "max_tokens": 300, "seed": number}
    path = rng.choice((CHAT, COMPLETIONS))
    if rng.random() < 0.6:
        await leave_stream(http, path, body, rng.randrange(10))
    else:
        await leave_after(http, path, body | {"stream": rng.random() < 0.5}, rng.random() * 0.1)


async def crowd(server: Server, count: int) -> None:
    """So many of them, as many at once as there are connections."""
    places = asyncio.Semaphore(CROWD)
    async with client_of(server) as http:

        async def one(number: int) -> None:
            async with places:
                await leave_at_random(http, number, random.Random(number))

        await asyncio.gather(*(one(number) for number in range(count)))


def seconds_until_idle(server: Server) -> float:
    start = time.monotonic()
    server.wait_idle()
    return time.monotonic() - start


def gauges(server: Server) -> list[float]:
    """Running, waiting, and the share of the cache that is held."""
    return [server.metric(name) for name in GAUGES]


def counts(server: Server, name: str) -> dict[str, float]:
    """Every series of a metric, by its labels without the model and the engine."""
    found = re.findall(rf"^{re.escape(name)}(?:\{{(.*?)\}})? (\S+)$", server.get("/metrics").text, re.MULTILINE)
    assert found, name
    shared = ("model_name", "engine")
    return {",".join(label for label in labels.split(",") if not label.startswith(shared)): float(value) for labels, value in found}


def total(server: Server, name: str) -> float:
    return sum(counts(server, name).values())
