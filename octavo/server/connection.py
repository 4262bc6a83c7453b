"""Connection: one client's, with limits on what it may send and how long that may take. Who breaks them is answered, then let go."""

import asyncio
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from octavo.server.errors import ErrorInfo, body_of, kind_of

HEADERS_S = 30.0  # from the connection, or from a request's first byte, to the end of its headers
BODY_S = 30.0  # for a body, and a second more for each BODY_BYTES_PER_S that have come
BODY_BYTES_PER_S = 16_384
STALLED_S = 120.0  # how long a client may leave unread what was sent to it
LINGER_S = 2.0  # how long what a refused client still sends is taken and dropped; closing at once would destroy the answer on its way


@dataclass(frozen=True)
class ConnectionLimits:
    """Of a request's line and headers together, in bytes, and of the number of its headers."""

    header_bytes: int
    header_count: int


class _RefusedError(Exception):
    """Raised inside the parser's callbacks; the parser then stops."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with the limits that it leaves to others. The server calls end_if_overdue() about once a second."""

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._limits = limits
        self._deadline = float("inf")  # of the part of a request that is awaited
        self._stalled_at = float("inf")
        self._is_refused = False
        self._is_reading = False  # a request has begun and is not whole
        self._is_in_headers = False
        self._num_headers = 0
        self._header_bytes = 0  # of the headers that are whole
        self._fed_bytes = 0  # since the request began, while its headers are not whole
        self._body_bytes = 0
        self._body_began = 0.0

    @property
    def is_answering(self) -> bool:
        """A request is here as a whole, and its answer is not."""
        return self.cycle is not None and not self._is_reading and not self.cycle.response_complete

    def end_if_overdue(self) -> None:
        """Let go of a client that keeps us waiting."""
        now = self.loop.time()
        if now - self._stalled_at > STALLED_S or (self._is_refused and now > self._deadline):
            self.transport.abort()
        elif now > self._deadline and not self.flow.read_paused:  # when we do not read, it is not the client who is late
            if self._is_reading:
                self._refuse(408, "the request did not arrive in time")
            else:
                self.transport.close()

    def end_unless_answering(self) -> None:
        """For a server that ends: a request that is not whole will not be answered."""
        if not self.is_answering:
            self.transport.close()

    # --- what the transport calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.time() + HEADERS_S

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, _RefusedError):
                self._refuse(cause.status, cause.message)
            else:
                self._refuse(400, "this is not a valid HTTP request")
            return
        if self._is_in_headers:  # one that has no end is not told to us by the parser
            self._fed_bytes += len(data)
            if self._fed_bytes > self._limits.header_bytes:
                self._refuse(*self._headers_too_large())

    def _parse(self, data: bytes) -> None:
        """No other protocol is spoken here, so that a request for one is answered as any. The parser, which would pass over its body, gets
        it again without that wish."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            lines = [self.parser.get_method(), b" ", self.url, b" HTTP/1.1\r\n"]
            for name, value in self.headers:
                if name not in (b"connection", b"upgrade"):
                    lines += [name, b": ", value, b"\r\n"]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(b"".join(lines) + b"\r\n" + data[upgrade.args[0] :])

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_at = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_at = float("inf")

    # --- what the parser calls

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # the first answer ends the connection, as a server may; holding the second request back would mean not to see the client leave
            self.cycle.keep_alive = False
            raise _RefusedError(0, "requests in a row are not read before the first is answered")
        super().on_message_begin()
        self._is_reading = self._is_in_headers = True
        self._num_headers = self._header_bytes = self._fed_bytes = self._body_bytes = 0
        self._deadline = self.loop.time() + HEADERS_S

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._limits.header_bytes:
            raise _RefusedError(414, f"the request's target is larger than {self._limits.header_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._num_headers += 1
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes + len(self.url) > self._limits.header_bytes:
            raise _RefusedError(*self._headers_too_large())
        if self._num_headers > self._limits.header_count:
            raise _RefusedError(431, f"the request has more than {self._limits.header_count} headers (--h11-max-header-count)")

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise _RefusedError(400, "this is no proxy")
            return
        self._is_in_headers = False
        self._body_began = self.loop.time()
        self._deadline = self._body_began + BODY_S
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._body_bytes += len(body)
        if not self.cycle.response_complete:  # what comes after the answer is read to be dropped, and not for ever
            self._deadline = self._body_began + BODY_S + self._body_bytes / BODY_BYTES_PER_S

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._is_reading = False
        self._deadline = float("inf")
        if self.cycle.response_complete and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    # --- refusals

    def _headers_too_large(self) -> tuple[int, str]:
        return 431, f"the request's headers are larger than {self._limits.header_bytes} bytes (--h11-max-incomplete-event-size)"

    def _refuse(self, status: int, message: str) -> None:
        """Answer, unless an answer has begun, and read no more. Status 0: what is being answered goes on."""
        self._is_refused = True
        if status == 0:
            return
        self.logger.info("%s: %s", self.client or "a client", message)
        self._deadline = self.loop.time() + LINGER_S
        cycle = self.cycle
        is_mid_answer = cycle is not None and cycle.response_started and not cycle.response_complete
        if is_mid_answer:
            self.transport.abort()
            return
        if cycle is not None and not cycle.response_complete:  # the endpoint waits for the rest of the body
            cycle.disconnected = True
            cycle.message_event.set()
        body = body_of(ErrorInfo(message, kind_of(status), None, status))
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
