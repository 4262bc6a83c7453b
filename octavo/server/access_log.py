"""Access log: a line for each request when it has been answered, with its status, its time and its id."""

import time
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.logging import get_logger

logger = get_logger(__name__)


class AccessLog:
    """hidden: paths whose requests get no line."""

    def __init__(self, app: ASGIApp, hidden: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._hidden = hidden

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._hidden:
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            client, took_s = scope.get("client"), time.monotonic() - began
            logger.info(
                '%s - "%s %s HTTP/%s" %d %.3f s %s',
                f"{client[0]}:{client[1]}" if client else "-",
                scope["method"],
                _target(scope),
                scope["http_version"],
                status,
                took_s,
                scope.get("state", {}).get("request_id", "-"),
            )


def hidden_paths(typed: str | None) -> frozenset[str]:
    """The paths of --disable-access-log-for-endpoints, which are told with commas between."""
    return frozenset(path.strip() for path in (typed or "").split(",") if path.strip())


def _target(scope: Scope) -> str:
    """Path and query with everything escaped that could end a line or change a terminal."""
    path = quote(scope["path"])
    query = quote(scope.get("query_string", b""), safe="%&=+;,:@/?!$'()*~-._")
    return f"{path}?{query}" if query else path
