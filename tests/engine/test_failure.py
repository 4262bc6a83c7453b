"""An error that crosses a process keeps its class, its fact and its hint."""

import inspect

import msgspec
import pytest

from octavo import errors
from octavo.plugins import UnknownNameError
from octavo.protocol.failure import describe, revive
from octavo.protocol.messages import Dead

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.OctavoError)]


@pytest.mark.parametrize("cls", CLASSES)
def test_round_trip(cls: type[errors.OctavoError]) -> None:
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(describe(cls("the fact", "do this"))), type=Dead)
    found = revive(sent)
    assert type(found) is cls
    assert (found.fact, found.hint) == ("the fact", "do this")


def test_other_errors_keep_their_words() -> None:
    assert revive(describe(KeyError("lost"))).fact == "KeyError: 'lost'"
    assert type(revive(describe(UnknownNameError("who", "known: me")))) is errors.OctavoError
