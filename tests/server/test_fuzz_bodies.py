"""Mutants of valid requests beside a normal client: its answers never change, the server lives, nothing stays behind of any of them."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.server import fuzzed_server, mutations
from tests.server.mutations import SEEDS, Mutant
from tests.server.real_server import RealServer
from tests.server.serving import parse_events

SAMPLE, MANY = 400, 5000
AT_ONCE = 8
WARM_UP = 200  # mutants after which memory is first measured
GROWTH = 0.15
WITHOUT_BODY = ("/ping",)
NORMAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "say t"}], "logprobs": True, "top_logprobs": 2}),
    ("/v1/completions", {"prompt": ["one p", "two x"], "logprobs": 1, "echo": True, "return_token_ids": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "o"}], "temperature": 1.0, "seed": 3, "n": 2, "stream": True}),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = fuzzed_server.start(tmp_path_factory.mktemp("script"))
    try:
        yield server.wait_ready()
    finally:
        server.close()


@pytest.fixture(scope="module")
def fields(server: RealServer) -> dict[str, list[str]]:
    """Of every endpoint that takes a body, the names of what it knows."""
    document = httpx.get(f"{server.url}/openapi.json").json()
    found = {}
    for path, operations in document["paths"].items():
        if "post" in operations and path not in WITHOUT_BODY:
            content = operations["post"].get("requestBody", {}).get("content", {})
            found[path] = sorted(_properties(content.get("application/json", {}).get("schema", {}), document))
    return found


def _properties(schema: dict[str, Any], document: dict[str, Any]) -> set[str]:
    """The names that a schema, or any form of it, has."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    forms = [form for kind in ("anyOf", "oneOf", "allOf") for form in schema.get(kind, ())]
    return set(schema.get("properties", ())).union(*(_properties(form, document) for form in forms))


def test_every_endpoint_has_seeds_that_it_answers(server: RealServer, fields: dict[str, list[str]]) -> None:
    assert fields.keys() <= SEEDS.keys()
    for path in fields:
        for body in SEEDS[path]:
            assert server.post(path, **body).status_code == 200, (path, body)


@pytest.mark.parametrize("count", [SAMPLE, pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
async def test_mutants_beside_a_normal_client(server: RealServer, fields: dict[str, list[str]], count: int) -> None:
    processes = [psutil.Process(server.process.pid), *server.children]
    # a client must close idle connections before the server does, or it may meet the end of one just as it sends
    limits = httpx.Limits(keepalive_expiry=2)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as http:
        normal = _Normal(http)
        await normal.begin()
        faults: list[str] = []
        statuses: dict[int, int] = {}
        memory: list[int] = []
        for start, end in ((0, WARM_UP), (WARM_UP, count)):
            numbers = iter(range(start, end))

            async def send_some(numbers: Iterator[int] = numbers) -> None:
                for number in numbers:
                    mutant = mutations.make(number, fields)
                    status = await _send(http, server.url, mutant, faults)
                    statuses[status] = statuses.get(status, 0) + 1

            await asyncio.gather(*(send_some() for _ in range(AT_ONCE)))
            memory.append(sum(process.memory_info().rss for process in processes))
        assert faults == [], "\n".join(faults)
        asked = await normal.end()
    assert asked >= count // 50
    assert statuses[200] > count // 20, statuses
    assert statuses[400] > count // 5, statuses
    server.wait_idle()
    assert server.process.poll() is None
    assert not server.faults
    assert memory[1] < memory[0] * (1 + GROWTH), memory


@pytest.mark.slow
async def test_every_field_with_every_odd_value(server: RealServer, fields: dict[str, list[str]]) -> None:
    faults: list[str] = []
    everything = [
        Mutant(number, path, json.dumps(SEEDS[path][0])[:-1].encode() + f", {json.dumps(name)}: {text}}}".encode("utf-8", "surrogatepass"))
        for path in fields
        for number, (name, text) in enumerate(itertools.product(fields[path], mutations.odd_texts()))
    ]
    mutants = iter(everything)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=httpx.Limits(keepalive_expiry=2)) as http:

        async def send_some() -> None:
            for mutant in mutants:
                await _send(http, server.url, mutant, faults)

        await asyncio.gather(*(send_some() for _ in range(AT_ONCE)))
    assert len(everything) > 3000
    assert faults == [], "\n".join(faults)
    server.wait_idle()
    assert not server.faults


class _Normal:
    """A client that asks the same again and again, and gets the same."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._first: list[Any] = []
        self._asked = 0
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._first = [await self._ask(path, body) for path, body in NORMAL]
        self._task = asyncio.create_task(self._go_on())

    async def end(self) -> int:
        """How often it asked meanwhile. Raises if an answer was another."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        return self._asked

    async def _go_on(self) -> None:
        while True:
            for (path, body), first in zip(NORMAL, self._first, strict=True):
                assert await self._ask(path, body) == first
                self._asked += 1

    async def _ask(self, path: str, body: dict[str, Any]) -> Any:
        response = await self._http.post(path, json={"temperature": 0, "max_tokens": 16} | body)
        assert response.status_code == 200, response.text
        if not body.get("stream"):
            return _told(response.json())
        texts: dict[int, str] = {}
        for event in parse_events(response.text)[:-1]:
            for choice in event["choices"]:
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["delta"].get("content", "")
        return texts


def _told(body: dict[str, Any]) -> Any:
    return body["choices"], body["usage"]


async def _send(http: httpx.AsyncClient, url: str, mutant: Mutant, faults: list[str]) -> int:
    """The status; 0 where the connection was cut. What is wrong with the answer is added to the faults."""
    if mutant.wire is not None:
        return await _send_bare(url, mutant, faults)
    headers = {name: value.encode("latin-1") for name, value in mutant.headers.items()}
    try:
        response = await http.post(mutant.path, content=mutant.body, headers=headers)
    except httpx.TransportError as error:
        faults.append(f"{error!r}: {mutant}")
        return 0
    if fault := _fault(response):
        faults.append(f"{fault}: {mutant}")
    return response.status_code


def _fault(response: httpx.Response) -> str | None:
    """What an answer must not be."""
    if response.status_code >= 500:
        return f"status {response.status_code} {response.text[:300]}"
    if response.headers["content-type"].startswith("text/event-stream"):
        events = parse_events(response.text)
        failed = [event for event in events[:-1] if event.get("error", {}).get("code", 0) >= 500]
        return f"event {failed[0]}" if failed else None if events[-1] == "[DONE]" else "a stream without its end"
    body = json.loads(response.text, parse_constant=lambda word: pytest.fail(f"{word} in an answer"))
    if response.status_code >= 400 and not {"message", "type", "param", "code"} <= body["error"].keys():
        return f"an error of another form: {response.text[:300]}"
    return None


async def _send_bare(url: str, mutant: Mutant, faults: list[str]) -> int:
    assert mutant.wire is not None
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    status = 0
    try:
        writer.write(mutant.wire)
        await writer.drain()
        if "no_http" in mutant.what or "chunked" in mutant.what:  # some of these are requests, and answered
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    words = (await reader.readline()).split(b" ", 2)
                    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
            if status >= 500:
                faults.append(f"status {status}: {mutant}")
    except ConnectionError:
        return 0
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return 0
