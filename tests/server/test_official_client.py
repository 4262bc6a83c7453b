"""The official client, typed, with and without asyncio, over a real socket: answers, streams, errors, retries, timeouts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import openai
import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam

from octavo.config.options import ServerOptions
from octavo.errors import OverloadedError
from octavo.server.state import Phase
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import Served, on_a_socket

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


def client_of(served: Served, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", **{"api_key": "none", "max_retries": 0, **options})


async def with_blocking_client(served: Served, use: Callable[[openai.OpenAI], None], **options: Any) -> None:
    """Call `use` with the client that knows no asyncio, on a thread."""

    def work() -> None:
        with openai.OpenAI(base_url=f"{served.url}/v1", **{"api_key": "none", "max_retries": 0, **options}) as client:
            use(client)

    await asyncio.to_thread(work)


# --- answers


async def test_the_blocking_client_reads_everything(tokenizer: Tokenizer) -> None:
    def use(client: openai.OpenAI) -> None:
        chat = client.chat.completions.create(model="scripted", messages=MESSAGES, n=2, seed=3, logprobs=True, top_logprobs=2)
        check_chat(chat)
        stream = client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True, stream_options={"include_usage": True})
        check_chunks(list(stream), chat.usage.prompt_tokens if chat.usage else 0)
        text = client.completions.create(model="scripted", prompt=["a", "b"], logprobs=1, max_tokens=20)
        check_text(text)
        with client.completions.create(model="scripted", prompt="a", max_tokens=20, stream=True) as pieces:
            assert "".join(piece.choices[0].text for piece in pieces) == "hello 😀 world"
        assert [model.id for model in client.models.list()] == ["scripted", "other-name"]
        check_model(client.models.retrieve("scripted"))

    async with on_a_socket(tokenizer, "hello 😀 world") as served:
        await with_blocking_client(served, use)


async def test_the_asyncio_client_reads_everything(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "hello 😀 world") as served, client_of(served) as client:
        chat = await client.chat.completions.create(model="scripted", messages=MESSAGES, n=2, seed=3, logprobs=True, top_logprobs=2)
        check_chat(chat)
        stream = await client.chat.completions.create(
            model="scripted", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        check_chunks([chunk async for chunk in stream], chat.usage.prompt_tokens if chat.usage else 0)
        check_text(await client.completions.create(model="scripted", prompt=["a", "b"], logprobs=1, max_tokens=20))
        assert [model.id async for model in client.models.list()] == ["scripted", "other-name"]
        check_model(await client.models.retrieve("scripted"))


def check_chat(chat: ChatCompletion) -> None:
    assert [choice.index for choice in chat.choices] == [0, 1]
    for choice in chat.choices:
        assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "hello 😀 world", "stop")
        assert not choice.message.tool_calls
        assert choice.message.refusal is None
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        first = choice.logprobs.content[0]
        assert (first.token, bytes(first.bytes or []), first.logprob, len(first.top_logprobs)) == ("hello", b"hello", -0.5, 2)
    assert chat.usage is not None
    assert chat.usage.total_tokens == chat.usage.prompt_tokens + chat.usage.completion_tokens
    assert chat._request_id
    assert ChatCompletion.model_validate(chat.model_dump()) == chat  # strictly as the types say


def check_chunks(chunks: list[ChatCompletionChunk], num_prompt: int) -> None:
    *own, usage = chunks
    assert own[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in own) == "hello 😀 world"
    assert [chunk.choices[0].finish_reason for chunk in own if chunk.choices[0].finish_reason] == ["stop"]
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.prompt_tokens == num_prompt
    assert len({chunk.id for chunk in chunks}) == 1
    for chunk in chunks:
        assert ChatCompletionChunk.model_validate(chunk.model_dump()) == chunk


def check_text(text: Completion) -> None:
    assert [(choice.index, choice.text, choice.finish_reason) for choice in text.choices] == [
        (0, "hello 😀 world", "stop"),
        (1, "hello 😀 world", "stop"),
    ]
    logprobs = text.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.tokens[0] == "hello"
    assert logprobs.top_logprobs
    assert Completion.model_validate(text.model_dump()) == text


def check_model(model: Model) -> None:
    assert (model.id, model.object, model.owned_by) == ("scripted", "model", "octavo")


async def test_raw_and_streaming_responses(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "hello") as served, client_of(served) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="scripted", messages=MESSAGES, extra_headers={"X-Request-Id": "mine"}, extra_body={"odd": 1}
        )
        assert raw.status_code == 200
        assert raw.headers["x-request-id"] == "mine"
        assert raw.headers["x-ignored-fields"] == "odd"
        assert raw.parse().id == "chatcmpl-mine"
        async with client.chat.completions.with_streaming_response.create(model="scripted", messages=MESSAGES, stream=True) as streamed:
            assert streamed.headers["content-type"].startswith("text/event-stream")
            assert (streamed.headers["cache-control"], streamed.headers["x-accel-buffering"]) == ("no-cache", "no")
            assert [line async for line in streamed.iter_lines()][-2:] == ["data: [DONE]", ""]


async def test_the_client_s_own_accumulator_reads_a_stream(tokenizer: Tokenizer) -> None:
    async with (
        on_a_socket(tokenizer, "hello") as served,
        client_of(served) as client,
        client.chat.completions.stream(model="scripted", messages=MESSAGES) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "content.delta" in kinds
    assert kinds.count("content.done") == 1
    assert (final.choices[0].message.content, final.choices[0].finish_reason) == ("hello", "stop")


# --- errors


async def test_each_error_has_its_class(tokenizer: Tokenizer) -> None:
    def use(client: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError) as missing:
            client.models.retrieve("nope")
        assert (missing.value.param, missing.value.type, missing.value.code) == ("model", "NotFoundError", "404")
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="nope", prompt="x")
        with pytest.raises(openai.BadRequestError, match="temperature must be") as wrong:
            client.chat.completions.create(model="scripted", messages=MESSAGES, temperature=3)
        assert wrong.value.param == "temperature"
        assert wrong.value.request_id
        with pytest.raises(openai.BadRequestError, match="maximum context length is 256 tokens") as long:
            client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "x" * 999}])
        assert long.value.param == "messages"
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True, temperature=3)
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="wrong").models.list()

    async with on_a_socket(tokenizer, options=ServerOptions(api_key=["right"])) as served:
        await with_blocking_client(served, use, api_key="right")


async def test_a_failure_of_the_engine_is_an_internal_error(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer) as served, client_of(served) as client:
        served.engine.fails = {"cmpl-": "logits hold NaN", "chatcmpl-": "logits hold NaN"}
        with pytest.raises(openai.InternalServerError, match="NaN"):
            await client.completions.create(model="scripted", prompt="x")
        stream = await client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="NaN"):
            await exhaust(stream)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_overloaded_server_is_asked_again_when_it_says(tokenizer: Tokenizer, stream: bool) -> None:
    """The client waits as long as retry-after tells, then the queue has room."""
    async with on_a_socket(tokenizer, "hello", max_num_seqs=1, max_num_queued_requests=0) as served, client_of(served) as client:
        served.client.gate.clear()
        blocker = asyncio.ensure_future(client.completions.create(model="scripted", prompt="x"))
        is_refused = asyncio.Event()
        check = served.llm.check_admission

        def watched(*counts: int) -> None:
            try:
                check(*counts)
            except OverloadedError:
                is_refused.set()
                raise

        served.llm.check_admission = watched  # type: ignore[method-assign]
        while served.llm.num_unfinished == 0:
            await asyncio.sleep(0)
        with pytest.raises(openai.InternalServerError) as refused:
            await client.completions.create(model="scripted", prompt="x")
        assert (refused.value.status_code, refused.value.type) == (503, "ServiceUnavailableError")
        assert refused.value.response.headers["retry-after"] == "1"
        is_refused.clear()
        began = asyncio.get_running_loop().time()
        create = client.with_options(max_retries=2).completions.create
        again = asyncio.ensure_future(create(model="scripted", prompt="x", stream=stream))
        await is_refused.wait()
        served.client.gate.set()
        assert (await blocker).choices[0].text == "hello"
        answer = await again
        assert asyncio.get_running_loop().time() - began >= 1.0
        assert "hello" in await text_of(answer)


async def test_a_server_that_starts_or_drains_is_unavailable(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer) as served, client_of(served) as client:
        state = served.app.state.server
        state.phase = Phase.DRAINING
        with pytest.raises(openai.InternalServerError, match="shutting down") as refused:
            await client.chat.completions.create(model="scripted", messages=MESSAGES)
        assert refused.value.status_code == 503
        state.phase = Phase.READY
        await client.chat.completions.create(model="scripted", messages=MESSAGES)


# --- leaving


async def test_a_timeout_of_the_client_ends_the_request(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "a" * 200) as served, client_of(served) as client:
        served.client.gate.clear()
        with pytest.raises(openai.APITimeoutError):
            await client.with_options(timeout=0.2).chat.completions.create(model="scripted", messages=MESSAGES)
        assert await served.llm.wait_for_requests_to_drain(10)
        while not served.engine.aborted:
            await asyncio.sleep(0)
        assert len(served.engine.added) == 1


async def test_a_timeout_between_two_chunks_ends_the_stream(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "a" * 200) as served, client_of(served, timeout=httpx.Timeout(0.3)) as client:
        served.client.allow(2)
        stream = await client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True)
        with pytest.raises((openai.APITimeoutError, httpx.ReadTimeout)):
            await exhaust(stream)
        await stream.close()
        assert await served.llm.wait_for_requests_to_drain(10)


async def test_a_stream_that_is_closed_early_ends_the_request(tokenizer: Tokenizer) -> None:
    def use(client: openai.OpenAI) -> None:
        with client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True, n=2, seed=1) as stream:
            next(stream)

    async with on_a_socket(tokenizer, "a" * 200) as served:
        served.client.allow(3)
        await with_blocking_client(served, use)
        assert await served.llm.wait_for_requests_to_drain(10)
        served.client.steps = None
        served.client.gate.set()
        async with client_of(served) as client, await client.completions.create(model="scripted", prompt="x", stream=True) as stream:
            await anext(stream)
        assert await served.llm.wait_for_requests_to_drain(10)


async def exhaust(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        assert True


async def text_of(answer: Any) -> str:
    if isinstance(answer, Completion):
        return answer.choices[0].text
    return "".join([piece.choices[0].text async for piece in answer])
