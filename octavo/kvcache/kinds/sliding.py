"""Sliding attention: a token reads itself and the window-1 tokens before it; blocks before that are let go."""

from collections.abc import Container, Sequence

from octavo.kvcache.specs import StateSpec


class Kind:
    grows = True
    can_rewind = True
    most_unused = 0.25

    def __init__(self, spec: StateSpec, block_size: int) -> None:
        self._block_size = block_size
        self._window = spec.window
        self._behind = -(-(spec.window - 1) // block_size)  # columns that a token at a border reads

    @staticmethod
    def page_bytes(spec: StateSpec, block_size: int) -> int:
        return block_size // spec.tokens_per_entry * spec.bytes_per_token

    def blocks_for(self, num_tokens: int, in_flight: int) -> int:
        whole = -(-num_tokens // self._block_size)
        # one more than the tokens fill: a window begins anywhere in a block
        return min(whole, -(-(self._window - 1 + in_flight) // self._block_size) + 1)

    def longest_hit(self, cached: Container[bytes], keys: Sequence[bytes], columns: int) -> int:
        """Only the columns that the next token reads must be there, so the search goes from the end."""
        end, column = columns, columns
        while column > 0 and end - column < self._behind:
            column -= 1
            if keys[column] not in cached:
                end = column
        return end

    def first_of_hit(self, columns: int) -> int:
        return max(0, columns - self._behind)

    def first_needed(self, confirmed: int) -> int:
        return max(0, confirmed - self._window + 1) // self._block_size

    def next_release(self, first: int) -> int | None:
        return (first + 1) * self._block_size + self._window - 1
