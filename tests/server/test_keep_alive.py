"""--sse-keep-alive-interval: comments while nothing comes, none while something does, and the official client sees no difference."""

import asyncio
import re
import selectors
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest

from octavo.config.options import ServerOptions
from octavo.server.sse import EventStream
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import Served, on_a_socket

OFTEN = ServerOptions(sse_keep_alive_interval=0.02)  # type: ignore[arg-type]
COMMENT = ": keep-alive\n\n"
BODY = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "stream": True}


async def read_until(lines: "asyncio.Queue[str]", count: int) -> list[str]:
    """Events and comments as they come, until so many comments were among them."""
    found: list[str] = []
    while found.count(": keep-alive") < count:
        found.append(await lines.get())
    return found


async def read_all(served: Served, path: str, blocks: "asyncio.Queue[str]") -> str:
    text = ""
    async with served.http.stream("POST", path, json=BODY) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            text += line + "\n"
            if line:
                blocks.put_nowait(line)
    return text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_comments_fill_the_pauses(tokenizer: Tokenizer, path: str) -> None:
    async with on_a_socket(tokenizer, "hello", options=OFTEN) as served:
        served.client.gate.clear()
        blocks: asyncio.Queue[str] = asyncio.Queue()
        reading = asyncio.ensure_future(read_all(served, path, blocks))
        waiting = await read_until(blocks, 2)  # in the queue, or while its prompt is computed
        assert set(waiting) == {": keep-alive"}
        served.client.allow(1)
        between = await read_until(blocks, 2)
        assert any(block.startswith("data: ") for block in between)
        served.client.steps = None
        served.client.gate.set()
        text = await reading
    assert re.fullmatch(rf"(?:{COMMENT}|data: [^\n]+\n\n)+", text)
    assert text.endswith("data: [DONE]\n\n")


async def test_none_is_sent_by_default(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer) as served:
        text = (await served.http.post("/v1/chat/completions", json=BODY)).text
    assert ServerOptions().sse_keep_alive_interval == 0
    assert "keep-alive" not in text


async def test_the_official_client_passes_over_comments(tokenizer: Tokenizer) -> None:
    async with (
        on_a_socket(tokenizer, "hello", options=OFTEN) as served,
        openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        served.client.allow(1)
        stream = await client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "hi"}], stream=True)
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if text and not served.client.gate.is_set():
                blocks: asyncio.Queue[str] = asyncio.Queue()  # a stream beside it shows that comments are sent now
                beside = asyncio.ensure_future(read_all(served, "/v1/completions", blocks))
                await read_until(blocks, 3)
                served.client.steps = None
                served.client.gate.set()
                await beside
    assert text == "hello"


async def test_a_client_that_leaves_between_two_comments_frees_its_place(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "a" * 200, options=OFTEN) as served:
        served.client.gate.clear()
        blocks: asyncio.Queue[str] = asyncio.Queue()
        reading = asyncio.ensure_future(read_all(served, "/v1/chat/completions", blocks))
        await read_until(blocks, 1)
        reading.cancel()
        assert await served.llm.wait_for_requests_to_drain(10)


class _Clockwork(selectors.DefaultSelector):
    """Waiting takes no time: the clock of its loop goes forward instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everything waits for ever"
        self.now += timeout
        return super().select(0)


def test_a_comment_comes_when_nothing_came_for_so_long_and_not_before() -> None:
    clock = _Clockwork()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # type: ignore[method-assign]
    sent: list[tuple[float, bytes]] = []

    async def events() -> AsyncGenerator[bytes, None]:
        for pause_s in (9.0, 9.0, 25.0, 1.0):
            await asyncio.sleep(pause_s)
            yield b"event"

    async def send(message: Any) -> None:
        if body := message.get("body"):
            sent.append((round(clock.now, 3), body))

    async def receive() -> Any:
        await asyncio.sleep(1000)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(EventStream(events(), [], keep_alive_s=10)({"type": "http"}, receive, send))
    comment = COMMENT.encode()
    assert sent == [(9, b"event"), (18, b"event"), (28, comment), (38, comment), (43, b"event"), (44, b"event")]
