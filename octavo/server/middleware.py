"""Middleware, as plain ASGI: request ids in and out, and the API key."""

import hashlib
import hmac
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo import logging
from octavo.frontend import tracing
from octavo.server.errors import ErrorInfo, response_of

GUARDED = ("/v1", "/v2", "/inference", "/cohere")
MAX_ID_LENGTH = 256
_TRACE_HEADERS = frozenset(name.encode() for name in tracing.HEADERS)


class RequestIds:
    """Each request has an id, its own (X-Request-Id) or a new one, and its answer bears it; the log and the trace know it too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = next((v for k, v in scope["headers"] if k == b"x-request-id"), b"")[:MAX_ID_LENGTH] or uuid.uuid4().hex.encode()
        scope.setdefault("state", {})["request_id"] = name.decode("latin-1")
        logging.request_id.set(name.decode("latin-1"))
        tracing.incoming.set({key.decode(): value.decode("latin-1") for key, value in scope["headers"] if key in _TRACE_HEADERS} or None)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name)]
            await send(message)

        await self._app(scope, receive, send_with_id)


class ApiKeys:
    """Nobody without a key reaches the guarded paths."""

    def __init__(self, app: ASGIApp, keys: list[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope.get("method") == "OPTIONS" or self._is_open(scope) or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        info = ErrorInfo("no valid API key: send it as Authorization: Bearer KEY", "AuthenticationError", None, 401)
        response = response_of(info)
        response.headers["www-authenticate"] = "Bearer"
        await response(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and path.startswith(root):
            path = path[len(root) :]
        return not path.startswith(GUARDED)

    def _has_key(self, scope: Scope) -> bool:
        """Compares with every key, in a time that tells nothing of them."""
        given = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, own) for own in self._digests]
        return scheme.lower() == b"bearer" and any(matches)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
