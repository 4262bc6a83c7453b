"""Failure: an error on its way from one process to another, and back into the same class."""

from octavo import errors
from octavo.errors import EngineDeadError, OctavoError
from octavo.protocol.messages import Dead


def describe(error: BaseException) -> Dead:
    """The error as a message. An error that is not one of octavo's keeps its type's name in the text."""
    if isinstance(error, OctavoError):
        return Dead(reason=error.fact, hint=error.hint, kind=type(error).__name__)
    return Dead(reason=f"{type(error).__name__}: {error}", kind=EngineDeadError.__name__)


def revive(failure: Dead) -> OctavoError:
    """The error that was described: the same class where octavo.errors has it, else OctavoError."""
    cls = getattr(errors, failure.kind, None)
    if not (isinstance(cls, type) and issubclass(cls, OctavoError)):
        cls = OctavoError
    return cls(failure.reason, failure.hint)
