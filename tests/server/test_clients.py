"""The official client over a real socket: streams, ends, disconnects, the engine's death."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import openai
import pytest

from octavo.text.tokenizer import Tokenizer
from tests.server.serving import Served, on_a_socket, parse_events

MESSAGES = [{"role": "user", "content": "hi"}]


def client_of(served: Served, **options: object) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, **options)  # type: ignore[arg-type]


async def test_chat_and_completions_whole_and_streamed(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "hello 😀 world") as served, client_of(served) as client:
        chat = await client.chat.completions.create(model="scripted", messages=MESSAGES, logprobs=True, top_logprobs=1)  # type: ignore[call-overload]
        assert chat.choices[0].message.content == "hello 😀 world"
        assert chat.choices[0].logprobs.content[0].top_logprobs[0].token == "hello"
        assert chat._request_id
        stream = await client.chat.completions.create(
            model="scripted",
            messages=MESSAGES,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == "hello 😀 world"
        assert chunks[-1].usage == chat.usage
        text = await client.completions.create(model="scripted", prompt="x", logprobs=1)
        assert text.choices[0].text == "hello 😀 world"
        pieces = [c.choices[0].text async for c in await client.completions.create(model="scripted", prompt="x", stream=True)]
        assert "".join(pieces) == "hello 😀 world"
        models = await client.models.list()
        assert models.data[0].id == "scripted"
        assert (await client.models.retrieve("other-name")).id == "other-name"


async def test_errors_reach_the_client_as_its_own_classes(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer) as served, client_of(served) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="nope", messages=MESSAGES)  # type: ignore[arg-type]
        assert missing.value.param == "model"
        with pytest.raises(openai.BadRequestError) as wrong:
            await client.chat.completions.create(model="scripted", messages=MESSAGES, temperature=9)  # type: ignore[arg-type]
        assert wrong.value.param == "temperature"


async def test_sixty_four_streams_at_once_all_say_the_same(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "the same 😀 words for everyone", per_step=2) as served:

        async def stream() -> str:
            response = await served.http.post("/v1/chat/completions", json={"messages": MESSAGES, "stream": True})
            events = parse_events(response.text)
            assert events[-1] == "[DONE]"
            return "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1])

        texts = await asyncio.gather(*(stream() for _ in range(64)))
    assert set(texts) == {"the same 😀 words for everyone"}


@pytest.mark.parametrize("streams", [True, False])
async def test_a_client_that_leaves_frees_its_place(tokenizer: Tokenizer, streams: bool) -> None:
    async with on_a_socket(tokenizer, "a" * 200) as served:
        served.client.allow(3)
        body = {"messages": MESSAGES, "stream": streams, "n": 2, "seed": 1}
        async with httpx.AsyncClient(base_url=served.url) as http:
            sending = asyncio.ensure_future(http.post("/v1/chat/completions", json=body))
            while served.client.gate.is_set() or served.llm.num_unfinished == 0:
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait({sending})
        assert await served.llm.wait_for_requests_to_drain(10)
        while len(served.engine.aborted) < 2:
            await asyncio.sleep(0)
        assert not served.engine.running
        served.client.steps = None
        served.client.gate.set()
        served.engine.script = "next"
        assert (await served.post("/v1/chat/completions", messages=MESSAGES)).json()["choices"][0]["message"]["content"] == "next"


async def test_open_streams_end_with_an_error_event_when_the_engine_dies(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "a" * 200) as served:
        served.client.allow(3)
        streamed = asyncio.ensure_future(served.http.post("/v1/chat/completions", json={"messages": MESSAGES, "stream": True}))
        whole = asyncio.ensure_future(served.post("/v1/completions", prompt="x"))
        while served.client.gate.is_set() or served.llm.num_unfinished < 2:
            await asyncio.sleep(0)
        served.client.kill()
        events = parse_events((await streamed).text)
        assert events[-2]["error"]["code"] == 500
        assert "signal 9" in events[-2]["error"]["message"]
        assert events[-1] == "[DONE]"
        assert (await whole).status_code == 500
        assert (await served.http.get("/health")).status_code == 503


async def test_the_client_library_raises_on_an_error_event(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "a" * 200) as served, client_of(served) as client:
        served.client.allow(3)
        stream = await client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True)  # type: ignore[call-overload]
        await anext(stream)
        served.client.kill()
        with pytest.raises(openai.APIError, match="signal 9"):
            await _exhaust(stream)


async def _exhaust(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        assert True
