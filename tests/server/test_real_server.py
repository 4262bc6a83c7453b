"""A real server through the official client: what is said, how it is refused, and that nobody's leaving hurts the others."""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from tests.server.real_server import CONTEXT, SCRIPTS, TEXTS, Reading, RealServer
from tests.server.serving import parse_events

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def says(key: str, text: str = "say") -> list[Any]:
    return [{"role": "user", "content": f"{text} {key}"}]


@pytest.fixture(scope="module")
def client(real_server: RealServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{real_server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


# --- answers


def test_the_ready_block_tells_how_to_begin(real_server: RealServer) -> None:
    log = real_server.log
    assert f"URL          {real_server.url}/v1" in log
    assert "model        scripted (llama, float32) on cpu" in log
    assert f"context      {CONTEXT:,} tokens" in log
    assert f"curl {real_server.url}/v1/chat/completions" in log
    for line in ("Available KV cache memory: 0.02 GiB", "CPU KV cache size: ", "Memory: runtime ", "Memory: weights ", "Memory: arena "):
        assert line in log


@pytest.mark.parametrize("key", TEXTS)
def test_chat_is_the_same_whole_and_in_pieces(real_server: RealServer, client: openai.OpenAI, key: str) -> None:
    params: dict[str, Any] = {"model": "scripted", "messages": says(key), "temperature": 0, "logprobs": True, "top_logprobs": 1}
    whole = client.chat.completions.create(**params)
    choice = whole.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TEXTS[key], "stop")
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (len(f"[user]say {key}{key}"), len(SCRIPTS[key]) + 1)
    chunks = list(client.chat.completions.create(**params, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0] for chunk in chunks[:-1]]
    assert "".join(piece.delta.content or "" for piece in pieces) == TEXTS[key]
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    entries = [entry for piece in pieces if piece.logprobs for entry in piece.logprobs.content or []]
    assert choice.logprobs is not None
    assert entries == choice.logprobs.content
    assert len(entries) == len(SCRIPTS[key]) + 1
    assert all(not entry.token.count("\ufffd") or key == "t" for entry in entries)


@pytest.mark.parametrize("key", TEXTS)
def test_completions_are_the_same_whole_and_in_pieces(client: openai.OpenAI, key: str) -> None:
    params: dict[str, Any] = {"model": "scripted", "prompt": ["one " + key, "two " + key], "temperature": 0, "logprobs": 1}
    whole = client.completions.create(**params)
    assert [(c.index, c.text, c.finish_reason) for c in whole.choices] == [(0, TEXTS[key], "stop"), (1, TEXTS[key], "stop")]
    texts, tokens = ["", ""], [[], []]  # type: ignore[var-annotated]
    for chunk in client.completions.create(**params, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            tokens[choice.index] += choice.logprobs.tokens if choice.logprobs else []  # type: ignore[operator]
    assert texts == [TEXTS[key]] * 2
    assert tokens == [choice.logprobs.tokens for choice in whole.choices if choice.logprobs]


def test_a_second_call_is_the_first_one_from_the_cache(client: openai.OpenAI) -> None:
    def ask() -> Any:
        return client.chat.completions.create(
            model="scripted", messages=says("t", "a question of more than two blocks " * 3), temperature=0, logprobs=True, top_logprobs=3
        )

    first, second = ask(), ask()
    assert first.choices == second.choices
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens == 96


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_over_token_borders(client: openai.OpenAI, include: bool) -> None:
    params: dict[str, Any] = {"model": "scripted", "messages": says("x"), "temperature": 0, "stop": ["</tool_call>", "never"]}
    params["extra_body"] = {"include_stop_str_in_output": include}
    text = "<tool_call>{}" + ("</tool_call>" if include else "")
    whole = client.chat.completions.create(**params).choices[0]
    assert (whole.message.content, whole.finish_reason, whole.model_extra["stop_reason"]) == (text, "stop", "</tool_call>")  # type: ignore[index]
    pieces = [chunk.choices[0] for chunk in client.chat.completions.create(**params, stream=True)]
    assert "".join(piece.delta.content or "" for piece in pieces) == text
    assert pieces[-1].finish_reason == "stop"


def test_several_choices(client: openai.OpenAI) -> None:
    params: dict[str, Any] = {"model": "scripted", "prompt": "say z", "n": 3, "temperature": 2.0, "seed": 7, "max_tokens": 12}
    params["extra_body"] = {"ignore_eos": True}
    whole = client.completions.create(**params)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert len({choice.text for choice in whole.choices}) == 3
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 36
    texts = ["", "", ""]
    for chunk in client.completions.create(**params, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]


def test_max_tokens_and_echo_and_prompt_scores(client: openai.OpenAI) -> None:
    cut = client.completions.create(model="scripted", prompt="say o", max_tokens=5, temperature=0)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == (" tick tock tack tick tock", "length")
    echoed = client.completions.create(model="scripted", prompt="say p", max_tokens=1, temperature=0, echo=True, logprobs=0)
    assert echoed.choices[0].text == "say pplain"
    assert echoed.choices[0].logprobs is not None
    assert echoed.choices[0].logprobs.tokens == ["s", "a", "y", " ", "p", "plain"]
    assert echoed.choices[0].logprobs.token_logprobs is not None
    assert echoed.choices[0].logprobs.token_logprobs[0] is None


def test_beam_search_is_a_request_like_any_other(real_server: RealServer) -> None:
    body = {"messages": says("p"), "use_beam_search": True, "n": 2, "max_tokens": 10}
    whole = real_server.post(CHAT, **body).json()
    assert whole["choices"][0]["message"]["content"] == TEXTS["p"]
    events = real_server.events(CHAT, **body)
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1] if e["choices"][0]["index"] == 0) == TEXTS["p"]


def test_beams_of_several_prompts_fail_as_one(real_server: RealServer) -> None:
    prompts = ["x" * (CONTEXT + 5), "say p", "say t"]
    response = real_server.post(COMPLETIONS, prompt=prompts, use_beam_search=True, max_tokens=10)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")
    response = real_server.post(COMPLETIONS, prompt=prompts, use_beam_search=True, max_tokens=10, stream=True)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")
    assert [c["text"] for c in real_server.post(COMPLETIONS, prompt=prompts[1:], use_beam_search=True).json()["choices"]] == [
        TEXTS["p"],
        TEXTS["t"],
    ]
    real_server.wait_idle()
    assert not real_server.faults


def test_models_version_and_health(real_server: RealServer, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list().data] == ["scripted"]
    assert client.models.retrieve("scripted").model_extra["max_model_len"] == CONTEXT  # type: ignore[index]
    assert [httpx.get(real_server.url + path).status_code for path in ("/health", "/ready", "/version")] == [200] * 3


# --- refusals


@pytest.mark.parametrize(
    ("params", "kind", "param"),
    [
        ({"model": "unknown"}, openai.NotFoundError, "model"),
        ({"temperature": 9}, openai.BadRequestError, "temperature"),
        ({"temperature": "warm"}, openai.BadRequestError, "temperature"),
        ({"top_p": 0}, openai.BadRequestError, "top_p"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"n": 0}, openai.BadRequestError, "n"),
        ({"n": 2, "temperature": 0}, openai.BadRequestError, "n"),
        ({"logit_bias": {"100000": 1}}, openai.BadRequestError, "logit_bias"),
        ({"logit_bias": {"word": 1}}, openai.BadRequestError, "logit_bias"),
        ({"stop": ""}, openai.BadRequestError, "stop"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": says("x" * CONTEXT)}, openai.BadRequestError, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            openai.BadRequestError,
            "messages",
        ),
        ({"logprobs": True, "top_logprobs": 21}, openai.BadRequestError, "top_logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, openai.BadRequestError, "tools"),
        ({"response_format": {"type": "yaml"}}, openai.BadRequestError, "response_format"),
        ({"stream_options": {"include_usage": True}}, openai.BadRequestError, "stream_options"),
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_wrong_is_named(client: openai.OpenAI, params: dict[str, Any], kind: type[Any], param: str, stream: bool) -> None:
    if stream and param == "stream_options":
        params = {"stream_options": {"include_usage": 5}}
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**{"model": "scripted", "messages": says("p"), "stream": stream, **params})
    assert caught.value.param == param
    assert param in str(caught.value) or param == "messages"


def test_what_is_no_request_at_all_is_refused(real_server: RealServer) -> None:
    for content in (b"", b"{", b"[]", b"5", b'"x"', b"\xff\xfe", b'{"messages": ' + b"[" * 5000):
        response = httpx.post(real_server.url + CHAT, content=content)
        assert (response.status_code, response.json()["error"]["type"]) == (400, "BadRequestError"), content
    assert httpx.get(real_server.url + "/v1/nothing").status_code == 404
    assert httpx.get(real_server.url + CHAT).status_code == 405


# --- leaving


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_client_that_leaves_a_stream_frees_its_blocks(real_server: RealServer, path: str) -> None:
    body = {"messages": says("o"), "prompt": "say o", "max_tokens": CONTEXT - 100, "stream": True}
    with httpx.stream("POST", real_server.url + path, json=body, timeout=60) as response:
        chunks = response.iter_text()
        next(chunks)
        while real_server.metric("num_requests_running") != 1:
            next(chunks)
        assert real_server.metric("kv_cache_usage_perc") > 0
    real_server.wait_idle()
    assert real_server.post(CHAT, messages=says("p")).json()["choices"][0]["message"]["content"] == TEXTS["p"]


def test_a_client_that_does_not_wait_for_its_answer_frees_its_blocks(real_server: RealServer) -> None:
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(real_server.url + CHAT, json={"messages": says("o"), "max_tokens": CONTEXT - 100, "n": 3, "seed": 1}, timeout=0.5)
    real_server.wait_idle()
    assert not real_server.faults


@pytest.mark.parametrize("sent", [0, 60, -40, -1])
@pytest.mark.parametrize("reset", [False, True])
async def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_fault(real_server: RealServer, sent: int, reset: bool) -> None:
    await cut_on_the_wire(real_server.url, CHAT, slice(sent), reset)
    real_server.wait_idle()
    assert not real_server.faults


async def test_two_hundred_requests_cut_at_random_points(real_server: RealServer) -> None:
    rng = random.Random(0)
    kinds = [rng.choice(("whole", "stream", "late", "raw", "kept")) for _ in range(200)]
    whole = asyncio.Semaphore(24)

    async with httpx.AsyncClient(base_url=real_server.url, timeout=60) as http:

        async def one(number: int, kind: str, rng: random.Random) -> None:
            key = rng.choice("ptx") if kind == "kept" else rng.choice("ptxoooo")
            path = rng.choice((CHAT, COMPLETIONS))
            body: dict[str, Any] = {"messages": says(key, f"{number}"), "prompt": f"{number} {key}", "max_tokens": 600, "temperature": 0}
            if kind != "kept" and rng.random() < 0.3:
                body |= {"n": 3, "temperature": 1.0}
            async with whole:
                if kind == "raw":
                    await cut_on_the_wire(real_server.url, path, slice(rng.randrange(300)), rng.random() < 0.5)
                elif kind == "kept":
                    events = parse_events((await http.post(path, json=body | {"stream": True})).text)
                    said = "".join(e["choices"][0].get("text") or e["choices"][0].get("delta", {}).get("content", "") for e in events[:-1])
                    assert said == TEXTS[key]
                elif kind == "stream":
                    await cut_after(http, path, body | {"stream": True}, rng.randrange(12))
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(rng.random() * 0.2):
                            await http.post(path, json=body | {"stream": kind == "late"})

        await asyncio.gather(*(one(number, kind, random.Random(number)) for number, kind in enumerate(kinds)))
    real_server.wait_idle()
    assert real_server.post(CHAT, messages=says("t")).json()["choices"][0]["message"]["content"] == TEXTS["t"]
    assert not real_server.faults


async def cut_after(http: httpx.AsyncClient, path: str, body: dict[str, Any], chunks: int) -> None:
    """Leave a stream after so many chunks."""
    async with http.stream("POST", path, json=body) as response:
        async for _ in response.aiter_text():
            chunks -= 1
            if chunks < 0:
                return


async def cut_on_the_wire(url: str, path: str, part: slice, reset: bool) -> None:
    """Send the beginning of a request and hang up, in order or with a reset."""
    body = b'{"prompt": "say o", "messages": [{"role": "user", "content": "say o"}], "max_tokens": 600, "stream": true}'
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write((head.encode() + body)[part])
    await writer.drain()
    if reset:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def test_many_long_streams_share_the_rows(real_server: RealServer) -> None:
    """There are more of them than rows: some wait, all are answered the same."""
    streams = [Reading(real_server.url, stream=True, max_tokens=150) for _ in range(20)]
    for stream in streams:
        assert stream.events[-1] == "[DONE]"
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in stream.events[:-1])
        assert text == " tick tock tack" * 50
    real_server.wait_idle()
