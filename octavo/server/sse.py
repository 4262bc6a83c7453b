"""Server-sent events: a stream of bytes to a client that may leave at any moment."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.frontend.stream import RequestStream

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_encoder = msgspec.json.Encoder()


def event(data: msgspec.Struct) -> bytes:
    """One event that holds `data` as JSON."""
    return b"data: " + _encoder.encode(data) + b"\n\n"


class EventStream(Response):
    """`events` yields bytes, any number of events at a time; it and the requests behind it are closed at once when the client leaves.

    keep_alive_s: after so long without an event a comment is sent, which clients pass over and proxies take for life; 0 = never.
    """

    def __init__(self, events: AsyncGenerator[bytes, None], requests: Sequence[RequestStream], keep_alive_s: float = 0) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = list(_HEADERS)
        self._events = events
        self._requests = requests
        self._keep_alive_s = keep_alive_s
        self._sent_s = 0.0  # when the last bytes were

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not sending.done():
                sending.cancel()
            for each in self._requests:  # a generator that never ran closes nothing
                await each.aclose()
            await asyncio.wait({sending})
            await self._events.aclose()
        if not sending.cancelled() and (error := sending.exception()) is not None and not isinstance(error, OSError):
            raise error

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        clock = asyncio.get_running_loop().time
        keeping = asyncio.ensure_future(self._keep_alive(send)) if self._keep_alive_s else None
        self._sent_s = clock()
        try:
            async for data in self._events:
                if data:
                    self._sent_s = clock()
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send) -> None:
        """A comment whenever nothing was sent for keep_alive_s. Whole events and comments never mix: each is one call of `send`."""
        clock = asyncio.get_running_loop().time
        while True:
            rest = self._sent_s + self._keep_alive_s - clock()
            if rest > 0:
                await asyncio.sleep(rest)
                continue
            self._sent_s = clock()
            await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})


async def left(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        continue
