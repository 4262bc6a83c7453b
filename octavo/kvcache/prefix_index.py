"""The prefix index: which block of a group holds the state after a given prefix. A key stands for all tokens up to the block's end."""


class PrefixIndex:
    """One key has at most one block in a group, and a block at most one key.

    blocks: a group: key -> block. keys: block -> (group, key).
    """

    def __init__(self, num_groups: int) -> None:
        self.blocks: list[dict[bytes, int]] = [{} for _ in range(num_groups)]
        self.keys: dict[int, tuple[int, bytes]] = {}

    def add(self, group: int, key: bytes, block: int) -> bool:
        """False if the key is taken in this group, or the block has a key."""
        if key in self.blocks[group] or block in self.keys:
            return False
        self.blocks[group][key] = block
        self.keys[block] = (group, key)
        return True

    def remove(self, block: int) -> None:
        """Raises KeyError for a block that is not in the index."""
        group, key = self.keys.pop(block)
        del self.blocks[group][key]

    def clear(self) -> None:
        for found in self.blocks:
            found.clear()
        self.keys.clear()
