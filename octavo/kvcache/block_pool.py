"""Blocks: who holds which, and in what order free ones are used again. No tokens and no tensors here."""

from collections import OrderedDict
from collections.abc import Iterable

from octavo.kvcache.prefix_index import PrefixIndex

NULL_BLOCK = 0


class BlockPool:
    """The blocks 1 .. num_blocks-1, counted by reference. Block 0 is the null block, which nobody holds.

    A free block is either empty, or cached: still found by its key, and revived when somebody holds it. Empty ones are given out first,
    then the cached ones in the order in which they became free. Every method takes constant time a block.
    """

    def __init__(self, num_blocks: int, index: PrefixIndex) -> None:
        self.num_blocks = num_blocks
        self.index = index
        self.references = [0] * num_blocks
        self._empty = list(range(num_blocks - 1, NULL_BLOCK, -1))  # the last one freed is the first one used: it is warm in a cache
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks that can be given out: empty or cached, held by nobody."""
        return len(self._empty) + len(self._cached)

    @property
    def usage(self) -> float:
        """The share of all blocks that somebody holds, 0 .. 1."""
        usable = self.num_blocks - 1
        return 1.0 - self.num_free / usable if usable > 0 else 0.0

    def allocate(self) -> int:
        """A block held once; the longest free cached one is forgotten if no empty one is left.

        Raises RuntimeError if none is free: whoever asks must have looked at num_free.
        """
        if self._empty:
            block = self._empty.pop()
        elif self._cached:
            block, _ = self._cached.popitem(last=False)
            self.index.remove(block)
        else:
            raise RuntimeError("the block pool is empty")
        self.references[block] = 1
        return block

    def hold(self, block: int) -> None:
        """Hold a block that is held by somebody, or free and cached."""
        if self.references[block] == 0:
            del self._cached[block]
        self.references[block] += 1

    def drop(self, block: int) -> None:
        """Undo one allocate or hold. Raises RuntimeError for a block that nobody holds."""
        references = self.references[block] - 1
        if references < 0:
            raise RuntimeError(f"block {block} was dropped more often than held")
        self.references[block] = references
        if references == 0:
            if block in self.index.keys:
                self._cached[block] = None
            else:
                self._empty.append(block)

    def cache(self, block: int, group: int, key: bytes) -> bool:
        """Let a held block be found by its key. False if another block has that key already."""
        return self.index.add(group, key, block)

    def uncache(self, block: int) -> None:
        """Let nobody find the block any more."""
        self.index.remove(block)
        if self.references[block] == 0:
            del self._cached[block]
            self._empty.append(block)

    def num_revivals(self, blocks: Iterable[int]) -> int:
        """How many of these count as free now and would not when they are held."""
        references = self.references
        return sum(1 for block in blocks if references[block] == 0)

    def clear_cache(self) -> bool:
        """Forget every cached block; False, and nothing is done, while any block is held."""
        if self.num_free != self.num_blocks - 1:
            return False
        self.index.clear()
        self._empty.extend(reversed(self._cached))
        self._cached.clear()
        return True
