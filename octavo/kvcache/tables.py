"""What one request holds in the cache: a block table a group, and how far its blocks are indexed."""


class Hit:
    """A prefix found in the cache.

    columns: full blocks of tokens that need not be computed. blocks: a table a group, 0 where nothing is needed.
    restores: (group, snapshot) to copy into the live state. revivals: how many of all these count as free until they are held.
    """

    __slots__ = ("blocks", "columns", "restores", "revivals")

    def __init__(self, columns: int, blocks: list[list[int]], restores: list[tuple[int, int]], revivals: int) -> None:
        self.columns = columns
        self.blocks = blocks
        self.restores = restores
        self.revivals = revivals


class Tables:
    """The cache's side of a request. `capacity` is for the scheduler to read; all else belongs to Cache.

    blocks: a table a group; where a group grows, entry i is the block of column i, 0 = none; else entry 0 is the live state.
    capacity: tokens that the columns allocated so far have room for.
    keys: of the full blocks of known tokens, as far as anybody asked.
    indexed: columns that have been offered to the index.
    first: a group: the first column that is still held.
    watch: nothing is to be done before so many tokens are confirmed.
    snapshots: (tokens, group, block) saved by steps that are not confirmed.
    saves, restores, zeroings: (group, block) for the plan that is being made.
    trusted: hit blocks whose content no confirmed step had written when they were hit.
    """

    __slots__ = (
        "adapter",
        "blocks",
        "capacity",
        "columns",
        "first",
        "indexed",
        "is_begun",
        "keys",
        "restores",
        "salt",
        "saves",
        "snapshots",
        "trusted",
        "watch",
        "zeroings",
    )

    def __init__(self, num_groups: int, salt: str | None = None, adapter: str | None = None) -> None:
        self.salt = salt
        self.adapter = adapter
        self.keys: list[bytes] = []
        self.reset(num_groups)

    def reset(self, num_groups: int) -> None:
        """Holding nothing. The keys stay: they are the tokens' alone."""
        self.blocks: list[list[int]] = [[] for _ in range(num_groups)]
        self.is_begun = False
        self.columns = 0
        self.capacity = 0
        self.indexed = 0
        self.first = [0] * num_groups
        self.watch = 0
        self.snapshots: list[tuple[int, int, int]] = []
        self.saves: list[tuple[int, int]] = []
        self.restores: list[tuple[int, int]] = []
        self.zeroings: list[tuple[int, int]] = []
        self.trusted: frozenset[int] = frozenset()
