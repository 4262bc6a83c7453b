"""Tapes: forwards of single tokens, recorded when a number of rows first comes and replayed from then on.

A forward of n single tokens is the same list of kernels over the same buffers each time; what differs lies in the buffers. Only the tables
widen with the longest context, so that is rounded up (`longest`), for a recorded forward and for any other of single tokens alike.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import torch

from octavo.device.arena import Arena
from octavo.logging import get_logger
from octavo.ops.tape import Tape, prepare, recording

logger = get_logger(__name__)

MOST_BYTES = 32 << 20  # of all tapes; the least recently used go
_LEAST_LENGTH = 1024


class Forward(NamedTuple):
    """What a forward leaves in the arena. logits: of every token, where all are sampled."""

    hidden: torch.Tensor
    logits: torch.Tensor | None


class Key(NamedTuple):
    rows: int
    longest: int
    makes_logits: bool


class _Kept(NamedTuple):
    tape: Tape
    forward: Forward
    top: int  # of the arena behind it


def longest(length: int, most: int) -> int:
    """The length that a step of single tokens with contexts of up to `length` is laid out for."""
    return min(most, max(_LEAST_LENGTH, 1 << (length - 1).bit_length()))


class Tapes:
    """max_rows: steps of more rows are not recorded; 0: none is."""

    def __init__(self, max_rows: int, device: str, arena: Arena) -> None:
        self._max_rows = max_rows
        self._device = device
        self._arena = arena
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._bytes = 0
        if max_rows:
            prepare(device)

    def run(self, key: Key, forward: Callable[[], Forward]) -> Forward:
        """The forward, or its replay. It must begin with the arena as it was for the others of its key."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            kept.tape.replay()
            self._arena.top = kept.top
            return kept.forward
        if key.rows > self._max_rows:
            return forward()
        with recording(self._device) as record:
            result = forward()
        tape = record.tape()
        if tape is None:
            logger.info("Steps run kernel by kernel: %s, which no tape can hold", record.foreign)
            self._max_rows = 0
            return result
        self._keep(key, _Kept(tape, result, self._arena.top))
        return result

    def _keep(self, key: Key, kept: _Kept) -> None:
        self._kept[key] = kept
        self._bytes += kept.tape.size_bytes
        while self._bytes > MOST_BYTES and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= gone.tape.size_bytes
