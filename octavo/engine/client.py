"""Clients of an engine core: one that blocks, one for an event loop. Both see the core's death and say why it died."""

import asyncio
import itertools
import threading
from collections import deque
from typing import Any

from octavo.config.config import Config
from octavo.engine.connection import Connection, connect
from octavo.errors import EngineDeadError, OctavoError
from octavo.logging import get_logger
from octavo.protocol.messages import Abort, Add, Call, EngineFacts, EngineOutputs, EngineRequest, Outputs, Reply

logger = get_logger(__name__)


class EngineClient:
    """For code that may wait. Used by one thread. launched: the connection to an engine that is on its way already."""

    def __init__(self, launched: Connection | None = None) -> None:
        self._launched = launched
        self._connection: Connection | None = None
        self._pending: deque[EngineOutputs] = deque()  # outputs that came while a call waited for its reply
        self._numbers = itertools.count()
        self._dead: OctavoError | None = None

    def start(self, config: Config) -> EngineFacts:
        """Start the engine. Raises the OctavoError that stopped it."""
        connection = self._launched or connect(config)
        facts = connection.start(config)
        self._connection = connection
        return facts

    @property
    def is_alive(self) -> bool:
        return self._connection is not None and self._dead is None

    def add(self, request: EngineRequest) -> None:
        self._connected().send(Add(request))

    def abort(self, request_ids: list[str]) -> None:
        self._connected().send(Abort(request_ids))

    def outputs(self, timeout_s: float | None = None) -> EngineOutputs | None:
        """The next outputs, or None when the time is over. Raises EngineDeadError."""
        if self._pending:
            return self._pending.popleft()
        message = self._receive(timeout_s)
        return message.outputs if isinstance(message, Outputs) else None

    def outputs_until_now(self) -> list[EngineOutputs]:
        """All that the engine has said up to this moment and nobody took; what was sent to it has been acted on. Raises EngineDeadError."""
        self.call("ping")
        found = list(self._pending)
        self._pending.clear()
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a named method of the engine core and wait. Raises OctavoError where the method failed."""
        number = next(self._numbers)
        self._connected().send(Call(number, method, list(arguments)))
        while True:
            message = self._receive(None)
            if isinstance(message, Outputs):
                self._pending.append(message.outputs)
            elif isinstance(message, Reply) and message.number == number:
                return _value(message)

    def shutdown(self) -> None:
        """End the engine and everything it started. Can be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _receive(self, timeout_s: float | None) -> Outputs | Reply | None:
        try:
            return self._connected().receive(timeout_s)
        except OctavoError as error:
            self._dead = error
            raise

    def _connected(self) -> Connection:
        if self._dead is not None:
            raise self._dead
        if self._connection is None:
            raise EngineDeadError("the engine has been shut down")
        return self._connection


class AsyncEngineClient:
    """For one event loop. A thread receives, so that the loop is woken once a message and never polls.

    dead: set when the engine has died; `death` then says why. launched: the connection to an engine that is on its way already.
    """

    def __init__(self, launched: Connection | None = None) -> None:
        self._launched = launched
        self.dead = asyncio.Event()
        self.death: OctavoError | None = None
        self._connection: Connection | None = None
        self._outputs: asyncio.Queue[EngineOutputs | None] = asyncio.Queue()
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._reader: threading.Thread | None = None
        self._is_ending = threading.Event()

    async def start(self, config: Config) -> EngineFacts:
        """Start the engine. Raises the OctavoError that stopped it."""
        loop = asyncio.get_running_loop()
        connection = self._launched or connect(config)
        starting = loop.run_in_executor(None, connection.start, config)
        try:
            facts = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # the thread cannot be stopped in the middle; what it started ends as soon as it is there
            starting.add_done_callback(lambda done: None if done.exception() else loop.run_in_executor(None, connection.close) and None)
            raise
        self._connection = connection
        self._reader = threading.Thread(target=self._read, args=(connection, loop), name="octavo-reader", daemon=True)
        self._reader.start()
        return facts

    @property
    def is_alive(self) -> bool:
        return self._connection is not None and self.death is None

    async def add(self, request: EngineRequest) -> None:
        self._connected().send(Add(request))

    async def abort(self, request_ids: list[str]) -> None:
        self._connected().send(Abort(request_ids))

    async def outputs(self) -> EngineOutputs:
        """The next outputs. Raises EngineDeadError when there will be no more."""
        if self._outputs.empty():
            self._connected()
        outputs = await self._outputs.get()
        if outputs is None:
            self._outputs.put_nowait(None)  # for whoever waits beside us
            self._connected()
            raise EngineDeadError("the engine has been shut down")
        return outputs

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a named method of the engine core. Raises OctavoError where the method failed."""
        connection = self._connected()
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._replies[number] = future
        try:
            connection.send(Call(number, method, list(arguments)))
            return await future
        finally:
            self._replies.pop(number, None)

    async def shutdown(self) -> None:
        """End the engine and everything it started. Can be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._close, connection)
            self._end(EngineDeadError("the engine has been shut down"), is_death=False)

    def _close(self, connection: Connection) -> None:
        self._is_ending.set()
        connection.wake()
        if self._reader is not None:
            self._reader.join()
        connection.close()

    def _read(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_ending.is_set():
            try:
                message = connection.receive(None)
            except OctavoError as error:
                _tell(loop, self._end, error, True)
                return
            if isinstance(message, Outputs):
                _tell(loop, self._outputs.put_nowait, message.outputs)
            elif isinstance(message, Reply):
                _tell(loop, self._reply, message)

    def _reply(self, reply: Reply) -> None:
        future = self._replies.get(reply.number)
        if future is not None and not future.done():
            try:
                future.set_result(_value(reply))
            except OctavoError as error:
                future.set_exception(error)

    def _end(self, error: OctavoError, is_death: bool) -> None:
        if is_death:
            self.death = error
            self.dead.set()
        for future in self._replies.values():
            if not future.done():
                future.set_exception(error)
        self._outputs.put_nowait(None)

    def _connected(self) -> Connection:
        if self.death is not None:
            raise self.death
        if self._connection is None:
            raise EngineDeadError("the engine has been shut down")
        return self._connection


def _tell(loop: asyncio.AbstractEventLoop, function: Any, *arguments: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        pass  # the loop is closed: nobody listens


def _value(reply: Reply) -> Any:
    if reply.error is not None:
        raise OctavoError(reply.error)
    return reply.value
