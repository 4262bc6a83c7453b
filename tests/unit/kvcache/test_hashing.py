"""Block keys: equal for equal prefixes in equal circumstances, and for nothing else."""

import hashlib
import itertools

import cbor2
import pytest

from octavo.errors import ConfigError
from octavo.kvcache.hashing import ALGORITHMS, BlockHasher, extra_keys
from octavo.protocol.columns import pack
from octavo.protocol.step import MediaReference

BLOCK = pack([1, 2, 3, 4])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_keys_tell_apart_everything_that_matters(algorithm: str) -> None:
    hasher = BlockHasher(algorithm, "seed")
    first = hasher.hash(hasher.root, BLOCK)
    keys = [
        first,
        hasher.hash(first, BLOCK),  # the same tokens after another prefix
        hasher.hash(hasher.root, pack([1, 2, 3, 5])),
        hasher.hash(hasher.root, BLOCK, extra_keys(0, 4, salt="a")),
        hasher.hash(hasher.root, BLOCK, extra_keys(0, 4, salt="b")),
        hasher.hash(hasher.root, BLOCK, extra_keys(0, 4, adapter="a")),
        hasher.hash(hasher.root, BLOCK, extra_keys(0, 4, media=[MediaReference("x", "image", 2, 9)])),
        hasher.hash(hasher.root, BLOCK, extra_keys(0, 4, media=[MediaReference("x", "image", 1, 9)])),
        hasher.hash(hasher.root, BLOCK, extra_keys(0, 4, media=[MediaReference("y", "image", 2, 9)])),
    ]
    for one, other in itertools.combinations(keys, 2):
        assert one != other
    again = BlockHasher(algorithm, "seed")
    assert again.hash(again.root, BLOCK) == first


def test_keys_are_what_the_algorithm_says() -> None:
    hasher = BlockHasher("sha256", "seed")
    assert hasher.root == hashlib.sha256(b"seed").digest()
    assert hasher.hash(hasher.root, BLOCK) == hashlib.sha256(hasher.root + BLOCK).digest()
    hasher = BlockHasher("sha256_cbor", "seed")
    assert hasher.hash(hasher.root, BLOCK) == hashlib.sha256(cbor2.dumps((hasher.root, [1, 2, 3, 4], None), canonical=True)).digest()


def test_an_unseeded_root_cannot_be_told_in_advance() -> None:
    assert BlockHasher("sha256").root != BlockHasher("sha256").root


def test_the_salt_is_in_the_first_block_and_media_where_they_reach() -> None:
    media = [MediaReference("x", "image", 6, 4)]
    assert extra_keys(0, 4, "salt", None, media) == (("salt", "salt"),)
    assert extra_keys(4, 8, "salt", None, media) == (("media", "x", 2),)
    assert extra_keys(8, 12, "salt", "lora", media) == (("adapter", "lora"), ("media", "x", -2))
    assert extra_keys(12, 16, "salt", None, media) == ()


def test_an_unknown_algorithm_is_named() -> None:
    with pytest.raises(ConfigError, match="'md5'"):
        BlockHasher("md5")
