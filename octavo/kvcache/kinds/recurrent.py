"""Recurrent state: one block holds all of it, so a prefix can be taken over only where a snapshot was saved, at a block's border.

A group's table has one entry, the live state. A snapshot is a block of the same pool, found by the key of the prefix that it stands for.
"""

from collections.abc import Container, Sequence

from octavo.kvcache.specs import StateSpec


class Kind:
    grows = False
    can_rewind = False
    most_unused = 0.25

    def __init__(self, spec: StateSpec, block_size: int) -> None:
        self._block_size = block_size

    @staticmethod
    def page_bytes(spec: StateSpec, block_size: int) -> int:
        return spec.bytes_per_sequence

    def blocks_for(self, num_tokens: int, in_flight: int) -> int:
        """The live state, and a snapshot that is being restored or saved."""
        return 2

    def longest_hit(self, cached: Container[bytes], keys: Sequence[bytes], columns: int) -> int:
        while columns > 0 and keys[columns - 1] not in cached:
            columns -= 1
        return columns

    def first_of_hit(self, columns: int) -> int:
        return columns

    def first_needed(self, confirmed: int) -> int:
        return 0

    def next_release(self, first: int) -> int | None:
        return None
