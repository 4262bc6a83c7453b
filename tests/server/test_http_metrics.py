"""HTTP metrics: what instrumentator counts, by labels that no client can multiply."""

import asyncio
import contextlib
from typing import Any

import pytest
from fastapi import FastAPI

from octavo.config.options import ServerOptions
from octavo.server.http_metrics import HttpMeter, HttpMetrics, _length
from octavo.text.tokenizer import Tokenizer
from tests.server.serving import Served, in_process

BODY = {"messages": [{"role": "user", "content": "hi"}]}


def counts(app: FastAPI) -> dict[tuple[str, str, str], int]:
    """Method, handler, status -> requests."""
    found = {}
    for family in app.state.server.http_metrics.collect():
        for s in family.samples:
            if s.name == "http_requests_total":
                found[s.labels["method"], s.labels["handler"], s.labels["status"]] = int(s.value)
    return found


def values(metrics: HttpMetrics, name: str) -> dict[str, float]:
    """By handler."""
    return {s.labels["handler"]: s.value for family in metrics.collect() for s in family.samples if s.name == name}


async def test_each_request_is_counted_under_its_endpoint(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process(tokenizer, options=ServerOptions(api_key=["k"])) as served:
        http = served.http
        key = {"authorization": "Bearer k"}
        await http.post("/v1/chat/completions", json=BODY, headers=key)
        await http.post("/v1/chat/completions", json=BODY | {"stream": True}, headers=key)
        await http.post("/v1/chat/completions", json=BODY)  # without a key
        await http.post("/v1/chat/completions", json={}, headers=key)
        for name in ("scripted", "a", "b/c"):
            await http.get(f"/v1/models/{name}", headers=key)
        for number in range(50):
            await http.get(f"/wp-admin/{number}", headers={"x-forwarded-for": str(number)})
        await http.request("BREW", "/v1/models")
        await http.delete("/v1/models", headers=key)
        for path in ("/health", "/metrics", "/version"):
            await http.get(path)
        monkeypatch.setattr(served.llm, "add_request", None)
        await http.post("/v1/completions", json={"prompt": "x"}, headers=key)
        assert counts(served.app) == {
            ("POST", "/v1/chat/completions", "2xx"): 2,
            ("POST", "/v1/chat/completions", "4xx"): 2,
            ("POST", "/v1/completions", "5xx"): 1,
            ("GET", "/v1/models/{name:path}", "2xx"): 1,
            ("GET", "/v1/models/{name:path}", "4xx"): 2,
            ("GET", "none", "4xx"): 50,
            ("other", "/v1/models", "4xx"): 1,
            ("DELETE", "/v1/models", "4xx"): 1,
        }


async def test_sizes_and_durations(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        whole = await served.post("/v1/chat/completions", **BODY)
        streamed = await served.post("/v1/chat/completions", **BODY, stream=True)
        metrics = served.app.state.server.http_metrics
    handler = "/v1/chat/completions"
    assert values(metrics, "http_response_size_bytes_sum")[handler] == len(whole.content) + len(streamed.content)
    sent = sum(int(response.request.headers["content-length"]) for response in (whole, streamed))
    assert values(metrics, "http_request_size_bytes_sum")[handler] == sent
    assert values(metrics, "http_request_duration_seconds_count")[handler] == 2
    many = {s.name: s.value for family in metrics.collect() for s in family.samples if not s.labels}
    assert many["http_request_duration_highr_seconds_count"] == 2
    assert many["http_request_duration_highr_seconds_sum"] == values(metrics, "http_request_duration_seconds_sum")[handler]


async def test_a_stream_lasts_until_its_end(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        served.client.gate.clear()
        asking = asyncio.ensure_future(served.post("/v1/completions", prompt="x", stream=True))
        while not served.engine.added:
            await asyncio.sleep(0)
        assert counts(served.app) == {}
        served.client.gate.set()
        await asking
        assert counts(served.app) == {("POST", "/v1/completions", "2xx"): 1}


async def test_a_client_that_leaves_before_an_answer_is_counted(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer) as served:
        await _leave(served)
        assert counts(served.app) == {("POST", "/v1/completions", "4xx"): 1}


async def _leave(served: Served) -> None:
    """Ask, and be gone before the answer."""
    served.client.gate.clear()
    body = b'{"prompt": "x"}'
    headers = [(b"host", b"test"), (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/completions", "raw_path": b"/v1/completions"}
    scope |= {"query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http", "root_path": ""}
    scope |= {"server": ("test", 80), "client": ("test", 1)}
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        while not served.engine.added:
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        """Nobody reads."""

    await served.app(scope, receive, send)
    served.client.gate.set()


@pytest.mark.parametrize(("error", "status"), [(None, "4xx"), (RuntimeError("broken"), "5xx"), (asyncio.CancelledError(), "4xx")])
async def test_a_request_without_an_answer_is_counted(error: BaseException | None, status: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if error is not None:
            raise error

    metrics = HttpMetrics()
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/x", "headers": []}
    with contextlib.suppress(RuntimeError, asyncio.CancelledError):
        await HttpMeter(app, metrics, [])(scope, app, app)  # type: ignore[arg-type]
    labels = [s.labels for family in metrics.collect() for s in family.samples if s.name == "http_requests_total"]
    assert labels == [{"method": "GET", "status": status, "handler": "none"}]


@pytest.mark.parametrize(("value", "length"), [(b"12", 12), (b"", 0), (b"-5", 0), (b"9" * 40, 0), (b"x", 0)])
def test_a_length_that_is_none_counts_as_nothing(value: bytes, length: int) -> None:
    assert _length({"headers": [(b"content-length", value)]}) == length
    assert _length({"headers": []}) == 0


async def test_without_engine_statistics_http_is_still_counted(tokenizer: Tokenizer) -> None:
    async with in_process(tokenizer, log_stats=False) as served:
        await served.post("/v1/chat/completions", **BODY)
        text = (await served.http.get("/metrics")).text
    assert "vllm:" not in text
    assert 'http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 1.0' in text
    assert "process_resident_memory_bytes" in text
