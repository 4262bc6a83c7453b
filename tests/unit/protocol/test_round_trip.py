"""Every field of every message survives its encoding, whether or not a feature fills it yet."""

import enum
import types
import typing
from typing import Any

import msgspec
import numpy as np
import pytest

from octavo.kvcache.worker_facts import WorkerFacts
from octavo.protocol import columns, messages, step
from octavo.protocol.sampling_params import SamplingParams

STRUCTS = [
    step.StepPlan,
    step.StepMasks,
    step.StepResult,
    messages.EngineRequest,
    messages.EngineOutputs,
    messages.EngineFacts,
    SamplingParams,
    WorkerFacts,
]

# values that the checks of SamplingParams and others ask for
VALID: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.5,
    "min_p": 0.5,
    "n": 2,
    "min_tokens": 1,
    "kind": "full",
    "truncation_side": "right",
}


def filled(kind: Any, name: str = "") -> Any:
    """A value of a type that is not the default of any field."""
    if name in VALID:
        return VALID[name]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return filled(next(a for a in arguments if a is not type(None)))
    if origin is list:
        return [filled(arguments[0])]
    if origin is tuple:
        return tuple(filled(a) for a in arguments)
    if origin is dict:
        return {filled(arguments[0]): filled(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, enum.IntEnum):
        return list(kind)[-1]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return struct(kind)
    return {int: 7, float: 1.5, str: "naïve 👋", bytes: np.arange(3, dtype=np.int32).tobytes(), bool: True, Any: 3}[kind]


def struct(kind: type[msgspec.Struct]) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(**{f.name: filled(hints[f.name], f.name) for f in msgspec.structs.fields(kind)})


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda k: k.__name__)
def test_every_field_round_trips(kind: type[msgspec.Struct]) -> None:
    value = struct(kind)
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT and not isinstance(field.default, bool):
            assert getattr(value, field.name) != field.default, f"{field.name} was not filled"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind) == value


@pytest.mark.parametrize(
    ("value", "union"),
    [
        (messages.Add(struct(messages.EngineRequest)), messages.ToCore),
        (messages.Abort(["a", "b"]), messages.ToCore),
        (messages.Call(3, "reset_prefix_cache", [1]), messages.ToCore),
        (messages.Stop(), messages.ToCore),
        (messages.Outputs(struct(messages.EngineOutputs)), messages.FromCore),
        (messages.Reply(3, {"a": 1}, "no"), messages.FromCore),
        (messages.Ready(struct(messages.EngineFacts)), messages.FromCore),
        (messages.Dead("gone", "start it again"), messages.FromCore),
    ],
    ids=lambda v: type(v).__name__,
)
def test_tagged_messages_keep_their_kind(value: Any, union: Any) -> None:
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=union)
    assert type(back) is type(value)
    assert back == value


def test_columns_keep_values() -> None:
    values = [0, 1, -2, 2**31 - 1, -(2**31)]
    assert columns.unpack(columns.pack(values)).tolist() == values
    assert columns.unpack(columns.pack(np.array(values, np.int64))).tolist() == values
    assert columns.unpack_floats(columns.pack_floats([0.5, -1.0])).tolist() == [0.5, -1.0]
