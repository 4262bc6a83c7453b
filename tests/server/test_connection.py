"""What a client may do to a connection: send too much, too slowly, in odd forms, and never read. It is answered, and hurts nobody."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from octavo.config.options import ServerOptions
from octavo.server import connection, http_server
from octavo.text.tokenizer import Tokenizer
from tests.server.raw import Client, ask, request
from tests.server.serving import Served, on_a_socket

CHAT = "/v1/chat/completions"
BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
STREAM = json.dumps(json.loads(BODY) | {"stream": True, "logprobs": True, "top_logprobs": 20}).encode()
SMALL = ServerOptions(h11_max_incomplete_event_size=4096, h11_max_header_count=20)
JSON = "Content-Type: application/json"


@pytest.fixture
async def served(tokenizer: Tokenizer) -> AsyncIterator[Served]:
    async with on_a_socket(tokenizer, options=SMALL) as served:
        yield served


# --- too much


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request("GET", "/health", f"X: {'a' * 3000}"), 200),
        (request("GET", "/health", f"X: {'a' * 5000}"), 431),
        (request("GET", "/health", *(f"X-{i}: {'a' * 300}" for i in range(15))), 431),
        (request("GET", "/health", *(f"X-{i}: a" for i in range(19))), 200),
        (request("GET", "/health", *(f"X-{i}: a" for i in range(20))), 431),
        (b"GET /health HTTP/1.1\r\nHost: test\r\nX: " + b"a" * 9000, 431),
        (b"GET /health HTTP/1.1\r\n" + b"a" * 9000, 431),
        (b"GET /" + b"a" * 9000, 414),
        (request("GET", f"/health?{'a' * 5000}"), 414),
        (request("POST", CHAT, JSON, f"X: {'a' * 3000}", body=BODY), 200),
    ],
)
async def test_headers_have_a_size_and_a_number(served: Served, data: bytes, status: int) -> None:
    answer = await ask(served.url, data)
    assert answer.status == status
    if status != 200:
        assert answer.error["code"] == status
        assert answer.error["type"] == "RequestTooLargeError"
        assert answer.headers["connection"] == "close"
    assert (await served.http.get("/health")).status_code == 200


async def test_headers_that_come_piece_by_piece_are_counted_together_and_each_request_s_apart(served: Served) -> None:
    async with Client(served.url) as client:
        for _ in range(5):  # 5 x 2,000 bytes, on one connection
            await client.send(request("GET", "/health", f"X: {'a' * 2000}"))
            assert (await client.answer()).status == 200
        await client.send(b"GET /health HTTP/1.1\r\nHost: test\r\n")
        answering = asyncio.ensure_future(client.answer())
        for _ in range(200):
            if not answering.done():
                await client.send(b"X: " + b"a" * 100 + b"\r\n")
                await asyncio.sleep(0)
        assert (await answering).status == 431
        assert await client.is_closed()


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_that_is_too_large_is_refused_in_json_and_not_kept(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, is_chunked: bool
) -> None:
    monkeypatch.setenv("OCTAVO_HTTP_MAX_REQUEST_BODY_SIZE", "100000")
    async with on_a_socket(tokenizer) as served, Client(served.url) as client:
        if is_chunked:
            await client.send(request("POST", CHAT, JSON, "Transfer-Encoding: chunked"))
            for _ in range(4):
                await client.send(b"8000\r\n" + b"a" * 0x8000 + b"\r\n")
        else:
            await client.send(request("POST", CHAT, JSON, "Content-Length: 50000000"))  # answered before any of it is here
        answer = await client.answer()
        assert (answer.status, answer.error["type"]) == (413, "RequestTooLargeError")
        assert "100000" in answer.error["message"]


async def test_a_body_that_is_refused_before_it_is_sent_is_not_asked_for(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_HTTP_MAX_REQUEST_BODY_SIZE", "1000")
    async with on_a_socket(tokenizer) as served:
        refused = await ask(served.url, request("POST", CHAT, "Expect: 100-continue", "Content-Length: 2000"))
        assert refused.status == 413
        async with Client(served.url) as client:
            await client.send(request("POST", CHAT, "Expect: 100-continue", f"Content-Length: {len(BODY)}"))
            assert (await client.answer(has_body=False)).status == 100
            await client.send(BODY)
            assert (await client.answer()).status == 200


async def test_a_connection_is_used_again_after_a_body_that_nobody_read(served: Served) -> None:
    async with Client(served.url) as client:
        for _ in range(3):
            await client.send(request("POST", "/nothing", body=b"x" * 300_000))
            assert (await client.answer()).status == 404
        await client.send(request("POST", CHAT, JSON, body=BODY))
        assert (await client.answer()).status == 200


# --- in odd forms


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET /health HTTP\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost test\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT test:80 HTTP/1.1\r\nHost: test\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: test\r\n\r\n",
        b"GET /a\x01b HTTP/1.1\r\nHost: test\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_400_in_json(served: Served, data: bytes) -> None:
    answer = await ask(served.url, data)
    assert answer.status == 400
    assert answer.error["type"] == "BadRequestError"
    assert (await served.http.get("/health")).status_code == 200


async def test_a_second_request_before_the_first_answer_is_not_read(served: Served) -> None:
    """Answered in its turn it would have to be held back, and while nothing is read nobody sees a client leave."""
    async with Client(served.url) as client:
        await client.send(request("POST", CHAT, JSON, body=BODY) + request("GET", "/health"))
        answer = await client.answer()
        assert answer.status == 200
        assert json.loads(answer.body)["choices"][0]["message"]["content"] == "hello world"
        assert await client.is_closed()


async def test_a_client_that_sends_on_and_leaves_is_missed(tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer, "a" * 200) as served:
        served.client.gate.clear()
        async with Client(served.url) as client:
            await client.send(request("POST", CHAT, JSON, body=BODY))
            await _until(lambda: len(served.engine.running) == 1)
            await client.send(request("GET", "/health"))
        await _until(lambda: not served.engine.running)
        served.client.gate.set()


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
async def test_an_upgrade_is_not_made_and_the_request_answered(served: Served, upgrade: str) -> None:
    headers = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {upgrade}", "HTTP2-Settings: AAMAAABk", JSON)
    assert (await ask(served.url, request("POST", CHAT, *headers, body=BODY))).status == 200
    assert (await ask(served.url, request("GET", "/health", *headers))).status == 200


async def test_methods(served: Served) -> None:
    head = await ask(served.url, request("HEAD", "/health"), has_body=False)
    assert (head.status, head.headers["content-length"]) == (200, "0")
    get = await ask(served.url, request("GET", "/version"))
    head = await ask(served.url, request("HEAD", "/version"), has_body=False)
    assert (head.status, head.headers["content-length"]) == (200, str(len(get.body)))
    assert (await ask(served.url, request("HEAD", "/nothing"), has_body=False)).status == 404
    for path, allowed in (("/health", "GET, HEAD, OPTIONS"), ("/ping", "GET, HEAD, OPTIONS, POST"), (CHAT, "OPTIONS, POST")):
        options = await ask(served.url, request("OPTIONS", path), has_body=False)
        assert (options.status, options.headers["allow"]) == (204, allowed)
        wrong = await ask(served.url, request("DELETE", path))
        assert (wrong.status, wrong.headers["allow"], wrong.error["type"]) == (405, allowed, "MethodNotAllowedError")
    missing = await ask(served.url, request("BREW", "/nothing"))
    assert missing.status in (400, 404)
    assert missing.error["code"] == missing.status


# --- too slowly


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of time that a test can wait for."""
    monkeypatch.setattr(connection, "HEADERS_S", 0.3)
    monkeypatch.setattr(connection, "BODY_S", 0.3)
    monkeypatch.setattr(connection, "STALLED_S", 0.5)
    monkeypatch.setattr(connection, "LINGER_S", 0.2)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health HTTP/1.1\r\nHost: te",
        b"GE",
        request("POST", CHAT, JSON, "Content-Length: 100"),
        request("POST", CHAT, JSON, "Content-Length: 100", body=b'{"mess'),
        request("POST", CHAT, JSON, "Transfer-Encoding: chunked") + b"5\r\n{",
    ],
)
async def test_a_request_that_does_not_come_whole_is_408(hasty: None, served: Served, data: bytes) -> None:
    async with Client(served.url) as client:
        await client.send(data)
        answer = await client.answer()
        assert (answer.status, answer.error["type"]) == (408, "RequestTimeoutError")
        assert await client.is_closed()
    assert (await served.http.post(CHAT, content=BODY)).status_code == 200
    assert not served.engine.running


async def test_a_connection_without_a_request_is_closed(hasty: None, served: Served) -> None:
    async with Client(served.url) as client:
        assert await client.is_closed()


async def test_who_sends_a_byte_now_and_then_gains_no_time(hasty: None, served: Served) -> None:
    async with Client(served.url) as client:
        answering = asyncio.ensure_future(client.answer())
        await client.send(b"GET /health HTTP/1.1\r\n")
        while not answering.done():
            await client.send(b"X: y\r\n")
            await asyncio.wait({answering}, timeout=0.05)
        assert (await answering).status == 408


async def test_an_answer_that_takes_long_is_no_fault_of_the_client(hasty: None, tokenizer: Tokenizer) -> None:
    async with on_a_socket(tokenizer) as served, Client(served.url) as client:
        served.client.gate.clear()
        await client.send(request("POST", CHAT, JSON, body=BODY))
        await _until(lambda: len(served.engine.running) == 1)
        await asyncio.sleep(2.5)  # two looks of the server
        served.client.gate.set()
        assert (await client.answer()).status == 200


async def test_a_stream_that_nobody_reads_is_ended(hasty: None, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was to say is kept once, as text, not as events; when nothing was taken for long the client is let go."""
    async with on_a_socket(tokenizer, "a" * 100_000, per_step=50, max_model_len=1_000_000) as served:
        parts = urlsplit(served.url)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.connect((parts.hostname, parts.port))
            client.sendall(request("POST", CHAT, JSON, body=STREAM))
            await _until(lambda: bool(served.engine.running))
            assert (await served.http.get("/health")).status_code == 200
            await _until(lambda: not served.engine.running, 30)
        assert served.engine.aborted


# --- ids and lines


@pytest.mark.parametrize("sent", [b"a b", b"a\tb", b"a\x85b", b"\xc3\xa4", b"x" * 257, b"", b"a\x1b[31m"])
async def test_an_id_that_could_break_a_header_or_a_line_is_replaced(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    answer = await ask(served.url, b"GET /health HTTP/1.1\r\nHost: test\r\nX-Request-Id: " + sent + b"\r\n\r\n")
    if answer.status == 200:
        assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    else:
        assert answer.status == 400  # the parser refuses it


async def test_lines_of_the_access_log(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.server import access_log

    lines: list[str] = []
    monkeypatch.setattr(access_log.logger, "info", lambda text, *values: lines.append(text % values))
    options = ServerOptions(disable_access_log_for_endpoints="/health, /metrics")
    async with on_a_socket(tokenizer, options=options) as served:
        await ask(served.url, request("GET", "/health"))
        await ask(served.url, request("GET", "/metrics?x"))
        await ask(served.url, request("GET", "/version?a=%0aFAKE&b=|<>", "X-Request-Id: mine"))
        await ask(served.url, request("GET", "/a%0aFAKE%1b[31m"))
        assert len(lines) == 2
        assert re.fullmatch(r'127\.0\.0\.1:\d+ - "GET /version\?a=%0aFAKE&b=%7C%3C%3E HTTP/1\.1" 200 \d\.\d{3} s mine', lines[0])
        assert '"GET /a%0AFAKE%1B%5B31m HTTP/1.1" 404' in lines[1]
    async with on_a_socket(tokenizer, options=ServerOptions(disable_uvicorn_access_log=True, enable_request_id_headers=False)) as served:
        answer = await ask(served.url, request("GET", "/version"))
        assert "x-request-id" not in answer.headers
        assert len(lines) == 2


# --- the end


async def test_the_last_bytes_wait_for_nobody_for_ever(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends closes what is idle or half sent at once, and lets go of a stream that is not read."""
    monkeypatch.setattr(http_server, "CLOSE_S", 3.0)
    async with on_a_socket(tokenizer, "a" * 100_000, per_step=50, max_model_len=1_000_000) as served:
        idle, half, unread = Client(served.url), Client(served.url), Client(served.url)
        async with idle, half, unread:
            await half.send(request("POST", CHAT, JSON, "Content-Length: 100", body=b"{"))
            unread.reader._transport.pause_reading()  # type: ignore[attr-defined]
            await unread.send(request("POST", CHAT, JSON, body=STREAM))
            await _until(lambda: bool(served.engine.running))
            began = asyncio.get_running_loop().time()
            ending = asyncio.ensure_future(served.end())
            assert await idle.is_closed()
            assert await half.is_closed()
            assert asyncio.get_running_loop().time() - began < http_server.CLOSE_S
            await ending  # it waits for the one that does not read
        await _until(lambda: not served.engine.running)


async def _until(condition: Any, timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)
