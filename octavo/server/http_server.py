"""The HTTP server: uvicorn with our connections, which looks after clients that keep it waiting, and closes in order."""

import asyncio
import contextlib
import functools
import logging as standard
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI

from octavo import environment
from octavo import logging as octavo_logging
from octavo.config.options import ServerOptions
from octavo.server import access_log
from octavo.server.connection import Connection, ConnectionLimits
from octavo.server.tls import Tls

CLOSE_S = 5.0  # how long open connections get to take their last bytes


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: ours know of the engine. on_end is called, again and again, while the last connections close."""

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_end = on_end

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def num_answering(self) -> int:
        """Requests that are here and not answered."""
        return sum(connection.is_answering for connection in self._connections())

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # about once a second
            for connection in self._connections():
                connection.end_if_overdue()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        for connection in self._connections():
            connection.end_unless_answering()
        closing = asyncio.ensure_future(self._close_all())
        try:
            await super().shutdown(sockets)
        finally:
            closing.cancel()

    async def _close_all(self) -> None:
        """Who does not take the last bytes in time loses them: uvicorn would cancel the tasks, each with a traceback."""
        end = asyncio.get_running_loop().time() + CLOSE_S
        while asyncio.get_running_loop().time() < end and not self.force_exit:
            self._on_end()
            await asyncio.sleep(0.1)
        for connection in self._connections():
            connection.transport.abort()

    def _connections(self) -> list[Connection]:
        return list(self.server_state.connections)  # type: ignore[arg-type]


def http_server(app: FastAPI, options: ServerOptions, certificate: Tls | None, on_end: Callable[[], None]) -> HttpServer:
    """A server for `app`, not started yet. on_end is called, again and again, while it ends and requests are open."""
    _log_as_octavo(options.uvicorn_log_level)
    limits = ConnectionLimits(options.h11_max_incomplete_event_size, options.h11_max_header_count)
    context = certificate.context if certificate is not None else None
    config = uvicorn.Config(
        app,
        http=functools.partial(Connection, limits=limits),  # type: ignore[arg-type]
        ws="none",
        ssl_context_factory=None if context is None else lambda config, default: context,
        log_config=None,
        log_level=options.uvicorn_log_level,
        access_log=False,  # ours tells more
        lifespan="off",
        timeout_keep_alive=environment.http_timeout_keep_alive_s(),
        timeout_graceful_shutdown=int(2 * CLOSE_S),
        server_header=False,
    )
    return HttpServer(config, on_end)


def _log_as_octavo(level: str) -> None:
    """uvicorn's records go where octavo's go."""
    number = 5 if level == "trace" else level.upper()
    octavo_logging.adopt("uvicorn", number)
    for name in ("uvicorn.error", access_log.logger.name):
        standard.getLogger(name).setLevel(number)
