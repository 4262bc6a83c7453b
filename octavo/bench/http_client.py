"""HTTP client: requests over connections that are kept open, each answer handed on as its bytes arrive, with the time of their arrival.

It must cost far less than the server that it measures, on the same two cores: one protocol object a connection, and a parser in C.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import httptools

from octavo.errors import ConfigError, OctavoError

OnBody = Callable[[int, bytes, float], None]  # status, bytes, when they came


class RequestFailed(OctavoError, RuntimeError):
    """No whole answer came."""


class Address:
    """Where a server is: http://host:port/path, https://... or unix:PATH."""

    def __init__(self, url: str, insecure: bool = False) -> None:
        self.socket_path = url.removeprefix("unix:") if url.startswith("unix:") else None
        parts = urlsplit("http://localhost" if self.socket_path else url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not an address of a server", "http://127.0.0.1:8000, https://... or unix:PATH")
        try:
            port = parts.port
        except ValueError:
            raise ConfigError(f"{url!r} has no port that can be") from None
        self.url = url
        self.host = parts.hostname
        self.port = port or (443 if parts.scheme == "https" else 80)
        self.path = parts.path.rstrip("/")
        self.header = f"[{self.host}]" if ":" in self.host else self.host
        if port is not None:
            self.header += f":{port}"
        self.tls = _tls(insecure) if parts.scheme == "https" else None


class Client:
    """As many connections as there are requests at once; one that has answered serves the next request."""

    def __init__(self, address: Address, headers: dict[str, str]) -> None:
        self.address = address
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()

    async def request(self, method: str, path: str, body: bytes | None, on_body: OnBody, headers: str = "") -> int:
        """The status of the answer, when all its bytes have gone to on_body. Raises RequestFailed. `headers`: whole lines."""
        head = f"{method} {self.address.path}{path} HTTP/1.1\r\nHost: {self.address.header}\r\n{self._headers}{headers}"
        length = "" if body is None else f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        message = f"{head}{length}\r\n".encode("latin-1", "replace") + (body or b"")
        while True:
            connection, is_fresh = await self._connection()
            try:
                status = await connection.send(message, on_body)
            except _Stale:
                if is_fresh:  # it was not idle: the server took the request and hung up
                    raise RequestFailed("the server closed the connection without an answer") from None
                continue
            except BaseException:
                connection.close()
                raise
            if connection.can_be_reused:
                self._idle.append(connection)
            else:
                connection.close()
            return status

    async def get(self, path: str, timeout_s: float = 10.0) -> tuple[int, bytes]:
        """(status, body). Raises RequestFailed, TimeoutError among it."""
        parts: list[bytes] = []
        try:
            status = await asyncio.wait_for(self.request("GET", path, None, lambda _, data, when: parts.append(data)), timeout_s)
        except TimeoutError:
            raise RequestFailed(f"{self.address.url}{path} did not answer within {timeout_s:g} s") from None
        return status, b"".join(parts)

    async def close(self) -> None:
        connections = list(self._all)
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.closed for connection in connections))

    async def _connection(self) -> "tuple[_Connection, bool]":
        while self._idle:
            connection = self._idle.pop()
            if connection.can_be_reused:
                return connection, False
        loop, address = asyncio.get_running_loop(), self.address
        connection = _Connection(loop, self._all.discard)
        try:
            if address.socket_path is not None:
                await loop.create_unix_connection(lambda: connection, address.socket_path)
            else:
                await loop.create_connection(lambda: connection, address.host, address.port, ssl=address.tls)
        except (OSError, ssl.SSLError) as error:
            raise RequestFailed(f"no server answers at {address.url}: {_reason(error)}") from None
        self._all.add(connection)
        return connection, True


class _Stale(Exception):
    """The connection was closed before a byte of the answer came."""


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_close: "Callable[[_Connection], None]") -> None:
        self.can_be_reused = False
        self.closed: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: asyncio.Future[int] | None = None
        self._on_body: OnBody | None = None
        self._status = 0
        self._now = 0.0
        self._has_begun = False
        self._is_framed = False  # the headers tell where the answer ends

    async def send(self, message: bytes, on_body: OnBody) -> int:
        if self._transport is None or self._transport.is_closing():
            raise _Stale
        self._parser = httptools.HttpResponseParser(self)
        self._answer = self._loop.create_future()
        self._on_body = on_body
        self._has_begun = self.can_be_reused = False
        self._transport.write(message)
        return await self._answer

    def close(self) -> None:
        self.can_be_reused = False
        if self._transport is not None:
            self._transport.abort()

    # --- of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        if self._answer is None or self._answer.done() or self._parser is None:
            self.close()  # nobody asked
            return
        self._has_begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(RequestFailed(f"the answer cannot be read: {error.__context__ or error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.can_be_reused = False
        if self._answer is not None and not self._answer.done():
            if not self._has_begun:
                self._fail(_Stale())
            elif self._status != 0 and not self._is_framed:
                self._answer.set_result(self._status)
            else:
                self._fail(RequestFailed("the connection broke off in the middle of the answer"))
        self._on_close(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # --- of httptools

    def on_message_begin(self) -> None:
        self._is_framed = False
        self._status = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._is_framed = True

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if self._on_body is not None:
            self._on_body(self._status, data, self._now)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self.can_be_reused = self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._status)


def allow_many_connections() -> None:
    """Let this process have as many files open as the system grants: a run may send a thousand requests at once."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, OSError):  # where "no limit" is more than the kernel takes
        return


def _tls(insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
