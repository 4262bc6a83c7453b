"""A server over a scripted engine: in this process for httpx, or behind a real socket for the official client."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI

from octavo.config.options import ServerOptions
from octavo.frontend.async_llm import AsyncLLM
from octavo.server.app import create_app
from octavo.server.http_server import http_server
from octavo.server.tls import Tls
from octavo.text.tokenizer import Tokenizer
from tests.unit.frontend.scripted import AsyncScriptedClient, ScriptedEngine, make_config


@dataclass
class Served:
    """A server, its engine, and an HTTP client for it."""

    app: FastAPI
    llm: AsyncLLM
    engine: ScriptedEngine
    client: AsyncScriptedClient
    http: httpx.AsyncClient
    url: str = "http://test"
    end: Callable[[], Awaitable[None]] | None = None  # of a server on a socket

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.http.post(path, json=body)

    async def events(self, path: str, **body: Any) -> list[Any]:
        """The events of a stream: JSON decoded, and "[DONE]"."""
        response = await self.http.post(path, json=body | {"stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return parse_events(response.text)


def parse_events(text: str) -> list[Any]:
    events = []
    for block in text.split("\n\n"):
        if block:
            assert block.startswith("data: "), block
            data = block.removeprefix("data: ")
            events.append(data if data == "[DONE]" else json.loads(data))
    return events


@contextlib.asynccontextmanager
async def engine_of(
    tokenizer: Tokenizer, script: Any, per_step: int = 1, **changes: Any
) -> AsyncIterator[tuple[AsyncLLM, AsyncScriptedClient]]:
    client = AsyncScriptedClient(ScriptedEngine(tokenizer, script, per_step))
    async with AsyncLLM(make_config(tokenizer, **changes), client, tokenizer) as llm:  # type: ignore[arg-type]
        yield llm, client


@contextlib.asynccontextmanager
async def in_process(
    tokenizer: Tokenizer, script: Any = "hello world", options: ServerOptions | None = None, per_step: int = 1, **changes: Any
) -> AsyncIterator[Served]:
    """Requests go straight into the app. A stream is read whole before the client sees it."""
    async with engine_of(tokenizer, script, per_step, **changes) as (llm, client):
        app = create_app(options, llm)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield Served(app, llm, client.engine, client, http)


@contextlib.asynccontextmanager
async def on_a_socket(
    tokenizer: Tokenizer,
    script: Any = "hello world",
    options: ServerOptions | None = None,
    per_step: int = 1,
    certificate: Tls | None = None,
    **changes: Any,
) -> AsyncIterator[Served]:
    """The real HTTP server on a port of its own."""
    async with engine_of(tokenizer, script, per_step, **changes) as (llm, client):
        app = create_app(options, llm)
        server = http_server(app, options or ServerOptions(), certificate, lambda: None)
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:

            async def end() -> None:
                server.should_exit = True
                await asyncio.shield(serving)

            try:
                yield Served(app, llm, client.engine, client, http, url, end)
            finally:
                await end()
