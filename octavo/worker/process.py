"""The worker's process: the main thread receives, the compute thread works and sends. Two sockets, each used by one thread only."""

import sys
from typing import Any

import msgspec
import zmq

from octavo import logging
from octavo.config.config import Config
from octavo.kvcache.specs import CachePlan
from octavo.protocol.messages import Dead
from octavo.protocol.step import StepMasks, StepPlan, StepResult
from octavo.worker.compute import Answer, ComputeThread


def main(arguments: list[str]) -> None:
    """arguments: the address to receive from and the address to send to. Each message is two frames: what it is, and its payload."""
    receive_from, send_to = arguments
    context = zmq.Context()
    inbox = context.socket(zmq.PULL)
    inbox.setsockopt(zmq.RCVHWM, 0)
    inbox.bind(receive_from)
    logging.configure(process_name="worker")
    compute = ComputeThread(_Sender(context, send_to))
    try:
        _serve(inbox, compute)
    finally:
        compute.forget()  # the process ends at once, in the middle of a step if need be


def _serve(inbox: "zmq.Socket[bytes]", compute: ComputeThread) -> None:
    """Until a stop comes."""
    decode_plan, decode_masks = msgspec.msgpack.Decoder(StepPlan).decode, msgspec.msgpack.Decoder(StepMasks).decode
    while True:
        kind, payload = inbox.recv_multipart()
        if kind == b"step":
            compute.step(decode_plan(payload))
        elif kind == b"masks":
            compute.masks(decode_masks(payload))
        elif kind == b"call":
            method, values = msgspec.msgpack.decode(payload, type=tuple[str, list[Any]])
            compute.call(method, values)
        elif kind == b"start":
            config = msgspec.msgpack.decode(payload, type=Config)
            logging.configure(config.log_level, "worker", config.log)
            compute.start(config)
        elif kind == b"cache":
            compute.initialize_cache(msgspec.msgpack.decode(payload, type=CachePlan))
        else:
            return  # "stop"


class _Sender:
    """Sends the compute thread's answers. The socket is made by the first of them, on that thread."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> None:
        self._context = context
        self._address = address
        self._socket: zmq.Socket[bytes] | None = None
        self._encode = msgspec.msgpack.Encoder().encode

    def __call__(self, answer: Answer) -> None:
        if self._socket is None:
            self._socket = self._context.socket(zmq.PUSH)
            self._socket.setsockopt(zmq.SNDHWM, 0)
            self._socket.connect(self._address)
        if isinstance(answer, StepResult):
            kind, payload = b"result", self._encode(answer)
        elif isinstance(answer, Dead):
            kind, payload = b"error", self._encode(answer)
        else:
            kind, payload = b"value", self._encode(answer[0])
        self._socket.send_multipart((kind, payload))


if __name__ == "__main__":
    main(sys.argv[1:])
