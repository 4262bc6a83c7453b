"""Tape: work that is done again and again with the same shapes is recorded once and replayed; a device may have a way to do so.

What `octavo/ops/<device>/tape.py` has: `prepare()`, which makes what replaying needs, and `recording() -> context of a Recording`. What is
done inside that is done, and recorded; afterwards `Recording.tape()` is a Tape, or None with `foreign` saying what cannot be replayed.
"""

import importlib
from contextlib import AbstractContextManager
from typing import Protocol


class Tape(Protocol):
    size_bytes: int

    def replay(self) -> None:
        """Do again what was recorded, in the same buffers, whatever is in them now."""
        ...


class Recording(Protocol):
    foreign: str | None

    def tape(self) -> Tape | None: ...


def prepare(device: str) -> None:
    """Make the kernels that replaying needs."""
    importlib.import_module(f"octavo.ops.{device}.tape").prepare()


def recording(device: str) -> AbstractContextManager[Recording]:
    """Record on the device of that kind, a key of octavo/ops/order.py."""
    context: AbstractContextManager[Recording] = importlib.import_module(f"octavo.ops.{device}.tape").recording()
    return context
