"""One kind of state a file: how many blocks it needs, which of them a prefix hit needs, which it can let go.

May import: kvcache.specs, the block pool and the prefix index.
"""
