"""Full attention: every token reads every token before it, so all blocks are held and a hit is an unbroken run from the start."""

from collections.abc import Container, Sequence

from octavo.kvcache.specs import StateSpec


class Kind:
    grows = True
    can_rewind = True
    most_unused = 0.125

    def __init__(self, spec: StateSpec, block_size: int) -> None:
        self._block_size = block_size

    @staticmethod
    def page_bytes(spec: StateSpec, block_size: int) -> int:
        return block_size // spec.tokens_per_entry * spec.bytes_per_token

    def blocks_for(self, num_tokens: int, in_flight: int) -> int:
        return -(-num_tokens // self._block_size)

    def longest_hit(self, cached: Container[bytes], keys: Sequence[bytes], columns: int) -> int:
        for column in range(columns):
            if keys[column] not in cached:
                return column
        return columns

    def first_of_hit(self, columns: int) -> int:
        return 0

    def first_needed(self, confirmed: int) -> int:
        return 0

    def next_release(self, first: int) -> int | None:
        return None
