"""HTTP metrics: requests, durations and sizes by endpoint, under the names of prometheus-fastapi-instrumentator, as vLLM's server has them.

Labels are bounded: an unknown path is "none", an unknown method "other", a status its class.
"""

import time
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.frontend.instruments import Counter, Family, Histogram, Summary
from octavo.server.errors import CLIENT_LEFT

UNCOUNTED = frozenset(("/metrics", "/health", "/load", "/ping", "/version", "/server_info"))
UNKNOWN_PATH = "none"
METHODS = frozenset(("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"))
FEW_BUCKETS = (0.1, 0.5, 1.0)
MANY_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0),
    *(30.0, 60.0),
)
# name, what it says, labels
HTTP_SERIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("http_requests", "Requests by method, class of status and endpoint.", ("method", "status", "handler")),
    ("http_request_size_bytes", "Size of the requests' bodies, as their Content-Length says.", ("handler",)),
    ("http_response_size_bytes", "Size of the answers' bodies, as sent.", ("handler",)),
    ("http_request_duration_seconds", "From a request's headers to the end of its answer.", ("method", "handler")),
    ("http_request_duration_highr_seconds", "The same with many buckets, for all endpoints together.", ()),
)


class HttpMetrics:
    """The series of one server. Used by its event loop alone."""

    def __init__(self) -> None:
        self._requests = Family(*HTTP_SERIES[0], Counter)
        self._sizes_in = Family(*HTTP_SERIES[1], Summary)
        self._sizes_out = Family(*HTTP_SERIES[2], Summary)
        self._durations = Family(*HTTP_SERIES[3], lambda: Histogram(FEW_BUCKETS))
        self._all = Family(*HTTP_SERIES[4], lambda: Histogram(MANY_BUCKETS))
        self._all.of()

    def record(self, method: str, handler: str, status: int, seconds: float, size_in: int, size_out: int) -> None:
        """One request and its answer."""
        self._requests.of(method, f"{status // 100}xx", handler).inc()
        self._sizes_in.of(handler).observe(size_in)
        self._sizes_out.of(handler).observe(size_out)
        self._durations.of(method, handler).observe(seconds)
        self._all.of().observe(seconds)

    def collect(self) -> Iterator[Metric]:
        for family in (self._requests, self._sizes_in, self._sizes_out, self._durations, self._all):
            yield from family.collect()  # type: ignore[attr-defined]


class HttpMeter:
    """Counts what goes through it: the outermost middleware, so that refusals count too."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, routes: Iterable[BaseRoute]) -> None:
        """routes: all of them; a request that is refused before one is chosen still counts for its endpoint."""
        self._app = app
        self._metrics = metrics
        self._paths = frozenset(path for each in routes if (path := getattr(each, "path", "")))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, size_out = time.perf_counter(), 0, 0

        async def send_and_count(message: Message) -> None:
            nonlocal status, size_out
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size_out += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_and_count)
        except Exception:
            status = status or 500
            raise
        finally:
            status = status or CLIENT_LEFT
            handler = self._handler(scope)
            if handler not in UNCOUNTED:
                method = scope["method"] if scope["method"] in METHODS else "other"
                self._metrics.record(method, handler, status, time.perf_counter() - began, _length(scope), size_out)

    def _handler(self, scope: Scope) -> str:
        """The path of the endpoint as its route writes it."""
        route = scope.get("route")
        if (written := getattr(route, "path", None)) is not None:
            return str(written)
        path: str = scope["path"]
        path = path.removeprefix(scope.get("root_path", ""))
        return path if path in self._paths else UNKNOWN_PATH


def _length(scope: Scope) -> int:
    value: bytes = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
    return int(value) if value.isdigit() and len(value) < 16 else 0
