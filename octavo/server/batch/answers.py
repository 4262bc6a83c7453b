"""Answers: a line goes through the endpoint that a client would have called, in this process, and comes back as a line."""

import asyncio
import uuid
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message

from octavo.logging import get_logger
from octavo.server.batch.lines import Line
from octavo.server.errors import ErrorInfo

logger = get_logger(__name__)


class Response(msgspec.Struct):
    """What the endpoint said; body: as it said it."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class Answer(msgspec.Struct):
    """One line of the output. error: null where the request was answered, else what stands in the body's "error" too."""

    id: str
    custom_id: str | None
    response: Response
    error: msgspec.Raw | None


class _Failed(msgspec.Struct):
    error: msgspec.Raw


class _Info(msgspec.Struct):
    error: ErrorInfo


def new_id() -> str:
    return uuid.uuid4().hex


def refused(line: Line) -> bytes:
    """The answer to a line that is no request."""
    assert line.fault is not None
    return written(line, 400, f"batch-{new_id()}", msgspec.json.encode(_Info(line.fault)))


async def answered(app: ASGIApp, line: Line, key: str | None) -> tuple[int, bytes]:
    """The endpoint's status, and the line that it makes. key: an API key that the app takes."""
    name = f"batch-{new_id()}"
    status, body = await call(app, line.path, line.body, name, key)
    return status, written(line, status, name, body)


def written(line: Line, status: int, request_id: str, body: bytes) -> bytes:
    """A line of the output, without its end."""
    error = None
    if status >= 400:
        try:
            error = msgspec.json.decode(body, type=_Failed).error
        except msgspec.DecodeError:
            error = msgspec.Raw(msgspec.json.encode(ErrorInfo(f"status {status}", "InternalServerError", None, status)))
            body = msgspec.json.encode(_Failed(error))
    return msgspec.json.encode(Answer(f"batch_req_{new_id()}", line.custom_id, Response(status, request_id, msgspec.Raw(body)), error))


async def call(app: ASGIApp, path: str, body: bytes, request_id: str, key: str | None) -> tuple[int, bytes]:
    """POST to an app as a client does that stays until it has the answer: its status and its body."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(b"x-request-id", request_id.encode())]
    if key is not None:
        headers.append((b"authorization", b"Bearer " + key.encode()))
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
        "state": {},
    }
    status, parts, is_sent, never = 500, bytearray(), False, asyncio.Event()

    async def receive() -> Message:
        nonlocal is_sent
        if is_sent:
            await never.wait()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            parts.extend(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception:  # the app has answered with 500 and raises for the log
        logger.exception("a request of the batch failed")
    return status, bytes(parts)
