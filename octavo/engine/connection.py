"""Connection: messages to an engine core and back, whether it lives in a process of its own or on a thread of this one."""

import queue
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import msgspec
import zmq

from octavo import environment
from octavo.config.config import Config
from octavo.config.layout import decide_parallel
from octavo.config.options import Options
from octavo.engine import launcher
from octavo.engine.process import run_core
from octavo.errors import EngineDeadError, OctavoError
from octavo.protocol.failure import revive
from octavo.protocol.messages import Dead, EngineFacts, FromCore, Outputs, Ready, Reply, Stop, ToCore


class Connection(Protocol):
    """Send from any thread; receive from one."""

    def start(self, config: Config) -> EngineFacts:
        """Start the core and wait until it can answer. Raises the OctavoError that it met."""
        ...

    def send(self, message: ToCore) -> None: ...

    def receive(self, timeout_s: float | None) -> Outputs | Reply | None:
        """The next message, or None if the time is over or wake() was called. Raises EngineDeadError if the core is dead."""
        ...

    def wake(self) -> None:
        """Make a receive that waits on another thread return."""
        ...

    def close(self) -> None:
        """End the core and wait for it. Only when no receive waits. Can be called twice."""
        ...


def launch_early(options: Options) -> "ProcessConnection | None":
    """The processes of an engine whose configuration is not known yet: they load libraries meanwhile. None: it is to have none."""
    layout = decide_parallel(options, [])
    if layout.core_in_process:
        return None
    connection = ProcessConnection()
    try:
        connection.launch(layout.executor)
    except BaseException:
        connection.close()
        raise
    return connection


def connect(config: Config) -> Connection:
    """The connection that the configuration asks for, not started yet."""
    return ThreadConnection() if config.parallel.core_in_process else ProcessConnection()


class ProcessConnection:
    """A core process behind two private ipc sockets."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._core: launcher.Child | None = None
        self._is_ready = False  # it reads messages
        self._is_ending = False  # by itself
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._outbox = self._context.socket(zmq.PUSH)
        self._inbox = self._context.socket(zmq.PULL)
        self._wake_sender = self._context.socket(zmq.PUSH)
        self._wake_receiver = self._context.socket(zmq.PULL)
        for each in self._sockets():
            each.setsockopt(zmq.LINGER, 0)
            each.setsockopt(zmq.SNDHWM, 0)
            each.setsockopt(zmq.RCVHWM, 0)
        self._sending = threading.Lock()
        self._poller = zmq.Poller()
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode: Any = msgspec.msgpack.Decoder(FromCore).decode

    def launch(self, executor: str) -> None:
        """Start the core's process and its worker's, before start() or by it."""
        self._directory = launcher.socket_directory()
        addresses = [f"ipc://{self._directory}/to-core", f"ipc://{self._directory}/from-core"]
        launcher.connect_outbox(self._outbox, addresses[0])
        self._inbox.bind(addresses[1])
        self._wake_receiver.bind("inproc://wake")
        self._wake_sender.connect("inproc://wake")
        self._core = launcher.launch("engine core", "engine.process", [*addresses, executor], self._directory)
        for each in (self._inbox, self._wake_receiver, self._core.life):
            self._poller.register(each, zmq.POLLIN)

    def start(self, config: Config) -> EngineFacts:
        try:
            if self._core is None:
                self.launch(config.parallel.executor)
            assert self._core is not None
            self._outbox.send(self._encode(config))
            facts = self._wait_until_ready(environment.engine_ready_timeout_s())
            self._is_ready = True
            self._core.watch(environment.engine_pulse_timeout_s())
            return facts
        except BaseException:
            self.close()
            raise

    def send(self, message: ToCore) -> None:
        payload = self._encode(message)
        with self._sending:
            if self._core is None:
                raise EngineDeadError("the engine has been shut down")
            self._outbox.send(payload)

    def receive(self, timeout_s: float | None) -> Outputs | Reply | None:
        message = self._next(timeout_s)
        if isinstance(message, Dead):
            raise revive(message)
        assert not isinstance(message, Ready)
        return message

    def wake(self) -> None:
        with self._sending:
            if not self._wake_sender.closed:
                self._wake_sender.send(b"")

    def close(self) -> None:
        try:
            self._end_core()
            if not self._context.closed:
                for each in self._sockets():
                    each.close()
                self._context.term()
        finally:  # also when Ctrl-C comes a second time
            if self._directory is not None:
                launcher.remove_directory(self._directory)

    def _end_core(self) -> None:
        with self._sending:
            core, self._core = self._core, None
            if core is None:
                return
            if self._is_ready:
                if core.is_alive():
                    self._outbox.send(self._encode(Stop()))
            elif not self._is_ending:
                core.terminate()
        core.close(2 * launcher.grace_s())  # its own children have a grace too

    def _sockets(self) -> tuple["zmq.Socket[bytes]", ...]:
        return self._outbox, self._inbox, self._wake_sender, self._wake_receiver

    def _wait_until_ready(self, timeout_s: float) -> EngineFacts:
        assert self._core is not None
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            try:
                message = self._next(left)
            except EngineDeadError:
                raise self._core.start_error() from None
            if isinstance(message, Ready):
                return message.facts
            if isinstance(message, Dead):
                self._is_ending = True
                raise revive(message)
        raise EngineDeadError(
            f"the engine was not ready after {timeout_s:g} s", "OCTAVO_ENGINE_READY_TIMEOUT_S sets how long to wait for it"
        )

    def _next(self, timeout_s: float | None) -> FromCore | None:
        if self._core is None:
            raise EngineDeadError("the engine has been shut down")
        ready = dict(self._poller.poll(None if timeout_s is None else int(max(0.0, timeout_s) * 1000)))
        if self._inbox in ready:  # before the death of the core: its last words say why
            message: FromCore = self._decode(self._inbox.recv())
            return message
        if self._wake_receiver in ready:
            self._wake_receiver.recv()
            return None
        if ready:
            if self._inbox.poll(100):  # what it sent just before its end may still be on its way
                last: FromCore = self._decode(self._inbox.recv())
                return last
            raise EngineDeadError(self._core.death())
        return None


class ThreadConnection:
    """A core on a thread of this process: the same messages, not encoded."""

    def __init__(self) -> None:
        self._from_core: queue.SimpleQueue[FromCore | None] = queue.SimpleQueue()
        self._core: Any = None
        self._thread: threading.Thread | None = None
        self._death: OctavoError | None = None

    def start(self, config: Config) -> EngineFacts:
        to_core: queue.SimpleQueue[ToCore] = queue.SimpleQueue()
        self._send = to_core.put
        self._thread = threading.Thread(target=run_core, args=(config, to_core, self._from_core.put), name="octavo-core", daemon=True)
        self._thread.start()
        try:
            message = self._from_core.get(timeout=environment.engine_ready_timeout_s())
        except queue.Empty:
            raise EngineDeadError(
                "the engine was not ready in time", "OCTAVO_ENGINE_READY_TIMEOUT_S sets how long to wait for it"
            ) from None
        if isinstance(message, Dead):
            self._thread.join()
            raise revive(message)
        assert isinstance(message, Ready)
        return message.facts

    def send(self, message: ToCore) -> None:
        if self._death is not None:
            raise self._death
        self._send(message)

    def receive(self, timeout_s: float | None) -> Outputs | Reply | None:
        if self._death is not None:
            raise self._death
        try:
            message = self._from_core.get(timeout=timeout_s) if timeout_s != 0 else self._from_core.get_nowait()
        except queue.Empty:
            return None
        if isinstance(message, Dead):
            self._death = revive(message)
            raise self._death
        assert not isinstance(message, Ready)
        return message

    def wake(self) -> None:
        self._from_core.put(None)

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._send(Stop())
            thread.join()
            self._death = self._death or EngineDeadError("the engine has been shut down")
