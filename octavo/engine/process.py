"""The engine core's process: the main thread runs the core and sends, a second one receives."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import zmq

from octavo import logging, plugins
from octavo.config.config import Config
from octavo.engine.executors.executor import Executor
from octavo.errors import OctavoError
from octavo.protocol.failure import describe
from octavo.protocol.messages import FromCore, Outputs, Ready, ToCore, Unreadable

logger = logging.get_logger(__name__)

CHECK_S = 0.25  # how long an idle core may not know that its worker is dead


def main(arguments: list[str]) -> None:
    """arguments: the address to receive from, the address to send to, and the executor. The first message is the configuration.

    It comes when the front end has read the model's files; the worker's process, which loads most, is on its way by then.
    """
    receive_from, send_to, kind = arguments
    logging.configure(process_name="core")
    executor = load_executor(kind)
    try:
        executor.launch()
        _serve(receive_from, send_to, executor)
    finally:
        executor.shutdown()


def _serve(receive_from: str, send_to: str, executor: Executor) -> None:
    from octavo.engine import core  # noqa: F401 - while nothing is to do yet

    context = zmq.Context()
    inbox, outbox = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    inbox.setsockopt(zmq.RCVHWM, 0)
    outbox.setsockopt(zmq.SNDHWM, 0)
    outbox.setsockopt(zmq.LINGER, 1000)
    inbox.bind(receive_from)
    outbox.connect(send_to)
    config = msgspec.msgpack.decode(inbox.recv(), type=Config)
    logging.configure(config.log_level, "core", config.log)
    messages: queue.SimpleQueue[ToCore] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(inbox, messages), name="octavo-inbox", daemon=True).start()
    encode = msgspec.msgpack.Encoder().encode
    run_core(config, messages, lambda message: outbox.send(encode(message)), executor)
    outbox.close()
    context.term()  # what was sent last leaves before the process does; the receiving thread is told to close its socket


def load_executor(kind: str) -> Executor:
    found: Executor = plugins.load("engine.executors", kind).create()
    return found


def run_core(
    config: Config, messages: queue.SimpleQueue[ToCore], send: Callable[[FromCore], Any], executor: Executor | None = None
) -> None:
    """Start a core and serve until a Stop comes. Sends Ready first, and Dead if something ended it; raises no Exception.

    executor: launched already; None: the one that the configuration names.
    """
    from octavo.engine.core import EngineCore  # takes a while, in which others can start

    core: EngineCore | None = None
    try:
        executor = executor or load_executor(config.parallel.executor)
        core = EngineCore(config, executor, QueueInbox(messages, executor.check), lambda outputs: send(Outputs(outputs)), send)
        send(Ready(core.start()))
        core.run()
    except OctavoError as error:
        send(describe(error))
    except Exception as error:
        logger.exception("the engine core failed")
        send(describe(error))
    finally:
        if core is not None:
            core.shutdown()


class QueueInbox:
    """The core's Inbox over a queue that another thread fills. While the core waits for input, `check` looks after the worker."""

    def __init__(self, messages: queue.SimpleQueue[ToCore], check: Callable[[], None]) -> None:
        self._messages = messages
        self._check = check

    def get(self, timeout_s: float) -> ToCore | None:
        """Raises what `check` raises."""
        self._check()
        try:
            return self._messages.get(timeout=min(timeout_s, CHECK_S))
        except queue.Empty:
            return None

    def poll(self) -> list[ToCore]:
        found: list[ToCore] = []
        try:
            while True:
                found.append(self._messages.get_nowait())
        except queue.Empty:
            return found


def _receive(inbox: "zmq.Socket[bytes]", messages: queue.SimpleQueue[ToCore]) -> None:
    decode: Any = msgspec.msgpack.Decoder(ToCore).decode
    while True:
        try:
            payload = inbox.recv()
        except zmq.ContextTerminated:
            inbox.close(0)
            return
        try:
            messages.put(decode(payload))
        except msgspec.DecodeError as error:
            logger.exception("a message from the front end cannot be read")
            if (request_id := _request_id(payload)) is not None:
                messages.put(Unreadable(request_id, str(error)))


def _request_id(payload: bytes) -> str | None:
    """Whose Add this is, whatever else is wrong with it; None if it is none."""
    try:
        message = msgspec.msgpack.decode(payload)
    except msgspec.DecodeError:
        return None
    match message:
        case ["Add", [str(request_id), *_]]:
            return request_id
    return None
