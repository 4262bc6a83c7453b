"""Middleware, as plain ASGI: a proxy's prefix, request ids in and out, HEAD as GET, bodies' sizes, a full queue, the count for /load."""

import re
import uuid

from starlette._utils import get_route_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo import logging
from octavo.errors import OverloadedError
from octavo.frontend import tracing
from octavo.server.errors import BodyTooLargeError, info_of, response_of
from octavo.server.state import ServerState

# printable and without a space, so that an id ends no header and no line of a log
_VALID_ID = re.compile(rb"[!-~]{1,256}")
_TRACE_HEADERS = frozenset(name.encode() for name in tracing.HEADERS)

# what takes a place in the engine's queue
GENERATING = frozenset(("/v1/chat/completions", "/v1/chat/completions/batch", "/v1/completions", "/invocations"))


class RequestIds:
    """Each request has an id: its own (X-Request-Id) where that is a fit one, or a new one. Log and trace know it; its answer bears it, if
    `is_told`.
    """

    def __init__(self, app: ASGIApp, is_told: bool = True) -> None:
        self._app = app
        self._is_told = is_told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = next((v for k, v in scope["headers"] if k == b"x-request-id"), b"")
        if _VALID_ID.fullmatch(name) is None:
            name = uuid.uuid4().hex.encode()
        scope.setdefault("state", {})["request_id"] = name.decode()
        logging.request_id.set(name.decode())
        tracing.incoming.set({key.decode(): value.decode("latin-1") for key, value in scope["headers"] if key in _TRACE_HEADERS} or None)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name)]
            await send(message)

        await self._app(scope, receive, send_with_id if self._is_told else send)


class RootPath:
    """Paths are the same with the prefix of a proxy before them, for proxies that keep it, and without, for those that strip it."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["root_path"] = self._prefix
        await self._app(scope, receive, send)


class HeadAsGet:
    """HEAD is answered as GET is, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, send_head)


class BodySizes:
    """No body is larger than the limit: refused before it is read where its length is told, else when it has become too large."""

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        if told.isdigit() and int(told) > self._limit:
            await response_of(info_of(self._error()))(scope, receive, send)
            return
        num_bytes = 0

        async def count() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._limit:
                raise self._error()
            return message

        await self._app(scope, count, send)

    def _error(self) -> BodyTooLargeError:
        return BodyTooLargeError(
            f"the request's body is larger than {self._limit} bytes",
            "send less, or start the server with a larger OCTAVO_HTTP_MAX_REQUEST_BODY_SIZE",
        )


class Admission:
    """When the queue is full a request is refused before its body is read: that, and making tokens of it, is most of its cost."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        llm = self._state.llm
        has_limit = llm is not None and llm.config.scheduler.max_num_queued_requests is not None
        if llm is not None and has_limit and scope.get("method") == "POST" and get_route_path(scope) in GENERATING:
            try:
                llm.check_admission()
            except OverloadedError as error:
                await response_of(info_of(error))(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Load:
    """How many requests are being answered, for /load: those that bring something to work on."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "POST" or scope["path"].endswith("/ping"):
            await self._app(scope, receive, send)
            return
        self._state.load += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._state.load -= 1
