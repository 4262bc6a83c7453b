"""Kind: what a cache group needs to know of its kind of state. One file in kinds/ each, with a class `Kind`."""

from collections.abc import Container, Sequence
from typing import Protocol

from octavo import plugins
from octavo.kvcache.specs import StateSpec


class Kind(Protocol):
    """The rules of one kind of state, for one spec and block size. A column is the run of tokens that one block covers.

    grows: True if the state of each column lies in a block of its own; False if one block holds all of it.
    can_rewind: True if the tokens at the end can be computed again with other values (rejected drafts).
    most_unused: the share of a group's slots that may stay empty for the sake of fewer groups.
    """

    grows: bool
    can_rewind: bool
    most_unused: float

    def __init__(self, spec: StateSpec, block_size: int) -> None: ...

    @staticmethod
    def page_bytes(spec: StateSpec, block_size: int) -> int:
        """Bytes of one layer's part of a block."""
        ...

    def blocks_for(self, num_tokens: int, in_flight: int) -> int:
        """The most blocks that a sequence of num_tokens holds at a time, when at most in_flight tokens are computed at once."""
        ...

    def longest_hit(self, cached: Container[bytes], keys: Sequence[bytes], columns: int) -> int:
        """The largest number of columns, at most `columns`, that can be taken as computed. keys: of the columns; cached: those found."""
        ...

    def first_of_hit(self, columns: int) -> int:
        """The first column whose block must be held to go on after a hit of so many."""
        ...

    def first_needed(self, confirmed: int) -> int:
        """The first column that the token at position `confirmed`, or any later one, can still read."""
        ...

    def next_release(self, first: int) -> int | None:
        """How many tokens must be confirmed until column `first` is no longer needed; None if it always is."""
        ...


def kind_of(spec: StateSpec) -> type[Kind]:
    """The rules' class for a spec. Raises UnknownNameError for a kind that has no file."""
    found: type[Kind] = plugins.load("kvcache.kinds", spec.kind).Kind
    return found
