"""Block keys: a digest of a block's tokens chained to its prefix's key, so that equal keys mean equal prefixes."""

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import cbor2
import msgspec
import xxhash

from octavo.errors import ConfigError
from octavo.protocol.step import MediaReference

ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _xxhash(data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(data)


class BlockHasher:
    """Makes keys with one of ALGORITHMS.

    sha256 and xxhash read the parent's key, the tokens as int32 and, where there are any, the extra keys as msgpack; the `_cbor` forms read
    canonical CBOR of (parent, tokens, extra keys), which other programs can make as well. sha256 is safe against made-up collisions, xxhash
    is not.

    seed: equal seeds give equal keys in every process. None: a random root, so that nobody outside can tell a key in advance.
    """

    def __init__(self, algorithm: str = "sha256", seed: str | None = None) -> None:
        if algorithm not in ALGORITHMS:
            raise ConfigError(f"unknown prefix caching hash algorithm {algorithm!r}", f"known: {', '.join(ALGORITHMS)}")
        self._digest: Callable[[bytes], bytes] = _sha256 if algorithm.startswith("sha256") else _xxhash
        self._is_cbor = algorithm.endswith("_cbor")
        self.root = self._digest(os.urandom(32) if seed is None else seed.encode())

    def hash(self, parent: bytes, tokens: bytes, extra: tuple[Any, ...] = ()) -> bytes:
        """The key of a block. parent: key of the block before it, `root` for the first. tokens: int32, all of the block's."""
        if self._is_cbor:
            values = memoryview(tokens).cast("i").tolist()
            return self._digest(cbor2.dumps((parent, values, list(extra) if extra else None), canonical=True))
        # unambiguous: the parent's and the tokens' lengths are the same in every block
        return self._digest(parent + tokens + msgspec.msgpack.encode(extra) if extra else parent + tokens)


def extra_keys(
    start: int, end: int, salt: str | None = None, adapter: str | None = None, media: Sequence[MediaReference] = ()
) -> tuple[Any, ...]:
    """What besides its tokens start .. end makes a block's state: the adapter, media that reach into it, and in the first block the salt.

    The first block is enough for the salt, since every later key is chained to it.
    """
    keys: list[Any] = []
    if salt is not None and start == 0:
        keys.append(("salt", salt))
    if adapter is not None:
        keys.append(("adapter", adapter))
    for item in media:
        if item.offset < end and item.offset + item.count > start:
            keys.append(("media", item.hash, item.offset - start))
    return tuple(keys)
