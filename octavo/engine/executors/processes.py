"""A worker process: messages over private ipc sockets, and the worker's death seen the moment it happens."""

from pathlib import Path
from typing import Any

import msgspec
import zmq

from octavo import environment
from octavo.config.config import Config
from octavo.engine import launcher
from octavo.errors import EngineDeadError
from octavo.kvcache.specs import CachePlan
from octavo.kvcache.worker_facts import WorkerFacts
from octavo.protocol.failure import revive
from octavo.protocol.messages import Dead
from octavo.protocol.step import StepMasks, StepPlan, StepResult


class Processes:
    """An Executor. Its methods are called by one thread."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._worker: launcher.Child | None = None
        self._is_ready = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._outbox = self._context.socket(zmq.PUSH)
        self._inbox = self._context.socket(zmq.PULL)
        for socket in (self._outbox, self._inbox):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.RCVHWM, 0)
        self._poller = zmq.Poller()
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode_result = msgspec.msgpack.Decoder(StepResult).decode

    def launch(self) -> None:
        self._directory = launcher.socket_directory()
        addresses = [f"ipc://{self._directory}/to-worker", f"ipc://{self._directory}/from-worker"]
        launcher.connect_outbox(self._outbox, addresses[0])
        self._inbox.bind(addresses[1])
        self._worker = launcher.launch("worker", "worker.process", addresses, self._directory)
        self._poller.register(self._inbox, zmq.POLLIN)
        self._poller.register(self._worker.life, zmq.POLLIN)

    def start(self, config: Config) -> WorkerFacts:
        try:
            if self._worker is None:
                self.launch()
            self._send(b"start", config)
            facts = msgspec.convert(self._value(environment.engine_ready_timeout_s(), is_starting=True), WorkerFacts)
            self._is_ready = True
            return facts
        except BaseException:
            self.shutdown()
            raise

    def initialize_cache(self, plan: CachePlan) -> None:
        self._send(b"cache", plan)
        self._value()
        if self._worker is not None:
            self._worker.watch(environment.engine_pulse_timeout_s())

    def submit(self, plan: StepPlan) -> None:
        self._send(b"step", plan)

    def submit_masks(self, masks: StepMasks) -> None:
        self._send(b"masks", masks)

    def collect(self, timeout_s: float | None = None) -> StepResult | None:
        message = self._receive(timeout_s)
        if message is None:
            return None
        kind, payload = message
        if kind != b"result":
            raise EngineDeadError(f"the worker answered a step with {kind!r}")
        return self._decode_result(payload)

    def call(self, method: str, *arguments: Any) -> Any:
        self._send(b"call", (method, arguments))
        return self._value()

    def check(self) -> None:
        if self._worker is None:
            raise EngineDeadError("the worker has been shut down")
        if not self._worker.is_alive():
            raise EngineDeadError(self._worker.death())

    def shutdown(self) -> None:
        worker, self._worker = self._worker, None
        try:
            if worker is not None:
                if not self._is_ready:
                    worker.terminate()
                elif worker.is_alive():
                    self._outbox.send_multipart((b"stop", b""))
                worker.close()
            if not self._context.closed:
                self._outbox.close()
                self._inbox.close()
                self._context.term()
        finally:
            if self._directory is not None:
                launcher.remove_directory(self._directory)

    def _send(self, kind: bytes, payload: Any) -> None:
        if self._worker is None:
            raise EngineDeadError("the worker has been shut down")
        self._outbox.send_multipart((kind, self._encode(payload)))

    def _receive(self, timeout_s: float | None, is_starting: bool = False) -> tuple[bytes, bytes] | None:
        if self._worker is None:
            raise EngineDeadError("the worker has been shut down")
        ready = dict(self._poller.poll(None if timeout_s is None else int(timeout_s * 1000)))
        if self._inbox in ready:
            kind, payload = self._inbox.recv_multipart()
            return kind, payload
        if ready:
            raise self._worker.start_error() if is_starting else EngineDeadError(self._worker.death())
        return None

    def _value(self, timeout_s: float | None = None, is_starting: bool = False) -> Any:
        message = self._receive(timeout_s, is_starting)
        if message is None:
            raise EngineDeadError(
                f"the worker was not ready after {timeout_s:g} s", "OCTAVO_ENGINE_READY_TIMEOUT_S sets how long to wait for it"
            )
        kind, payload = message
        if kind == b"error":
            raise revive(msgspec.msgpack.decode(payload, type=Dead))
        return msgspec.msgpack.decode(payload)


def create() -> Processes:
    return Processes()
