"""Choosing an implementation: in the declared order, the first that does not refuse; each refusal keeps its reason.

An op is a file in octavo/ops with a `Reference` class: slow, plain torch, obviously right. An implementation is a file with a class
`Implementation`. Both have

    refuses(facts) -> str | None     (static) why it cannot do this, or None
    __init__(facts)                  may compile; everything that a call needs is made here
    __call__(out, ...)               writes its first argument(s); the op's Reference documents shapes
    pack(weight, facts) -> weight    (static) only where weights have a layout of their own (linear, embedding, moe); on meta tensors too
    scratch_size(facts, ...) -> int  (static) only where a call takes a scratch tensor: the bytes it needs at most

`facts` is the op's own frozen dataclass (`Facts` in the op's file): all that is known when the model is finished. The device's order of
implementations is in octavo/ops/order.py.
"""

import importlib
from dataclasses import dataclass, field
from typing import Any

from octavo.ops.order import ORDER


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for an op, and why not those before it."""

    op: str
    name: str
    implementation: Any
    refusals: list[str] = field(default_factory=list)


class Dry:
    """An implementation on meta tensors: computes nothing, packs like the real one, so that sizes are the real ones."""

    def __init__(self, implementation: type, facts: Any) -> None:
        self._implementation = implementation
        self.facts = facts

    def __call__(self, *tensors: Any, **options: Any) -> None:
        return None

    def pack(self, weight: Any, facts: Any = None) -> Any:
        """The packed weight's shape, by the implementation's own `pack`."""
        pack = getattr(self._implementation, "pack", None)
        return weight if pack is None else pack(weight, facts or self.facts)

    def __getattr__(self, name: str) -> Any:
        """The implementation's other static methods."""
        return getattr(self._implementation, name)


def choose(op: str, facts: Any, device: str = "cpu", mode: str = "fast", dry: bool = False) -> Choice:
    """The implementation of `op` for `facts`.

    device: a key of ORDER. mode: "fast", or "reference" to take the reference whatever else there is. dry: for meta tensors.
    """
    refusals: list[str] = []
    for name in ORDER[device][op] if mode == "fast" else ("reference",):
        if name == "reference":
            cls = importlib.import_module(f"octavo.ops.{op}").Reference
        else:
            cls = importlib.import_module(f"octavo.ops.{name}").Implementation
        reason = cls.refuses(facts)
        if reason is None:
            return Choice(op, name, Dry(cls, facts) if dry else cls(facts), refusals)
        refusals.append(f"{name}: {reason}")
    raise NotImplementedError(f"no implementation of {op} for {facts}: " + "; ".join(refusals))
