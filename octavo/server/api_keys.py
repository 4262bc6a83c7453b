"""API keys: who has none does not reach what is guarded, however the path is written."""

import hashlib
import hmac

from starlette._utils import get_route_path  # the string that routes are matched with: a second reading of the path could differ from it
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo import environment
from octavo.config.options import ServerOptions
from octavo.server.errors import ErrorInfo, response_of

GUARDED = ("/v1", "/v2", "/inference", "/cohere")
ALWAYS_OPEN = frozenset(("/health", "/ready", "/version", "/ping"))


def api_keys(options: ServerOptions) -> list[str]:
    """The keys that clients must send, from the options or else from the environment; none = open to all."""
    if options.api_key:
        return [key for key in options.api_key if key]
    return environment.api_keys()


def is_guarded(path: str, guards_all: bool) -> bool:
    """Whether a path, as routes are matched with it, needs a key."""
    return path not in ALWAYS_OPEN if guards_all else path.startswith(GUARDED)


class ApiKeys:
    """The innermost middleware but one, so that no other can change the path after the key was asked for.

    guards_all: what is not ALWAYS_OPEN is guarded, not only GUARDED.
    """

    def __init__(self, app: ASGIApp, keys: list[str], guards_all: bool = False) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]
        self._guards_all = guards_all

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
        return not is_guarded(get_route_path(scope), self._guards_all)

    def _has_key(self, scope: Scope) -> bool:
        """Compares with every key, in a time that tells nothing of them."""
        given = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, own) for own in self._digests]
        return scheme.lower() == b"bearer" and any(matches)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
