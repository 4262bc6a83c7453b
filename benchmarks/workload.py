"""The workload: the same token ids for every engine, from fixed seeds (1,000 to 39,999 of SmolLM2's vocabulary: no special ones)."""

import random


def ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(1000, 40000) for _ in range(count)]


def single(count: int, seed: int = 7) -> list[int]:
    """One prompt of `count` tokens."""
    return ids(random.Random(seed + count), count)


def offline(count: int = 64, seed: int = 0) -> list[tuple[list[int], int]]:
    """Requests as (prompt of 32-512 tokens, 64-256 tokens to generate)."""
    rng = random.Random(seed)
    return [(ids(rng, rng.randint(32, 512)), rng.randint(64, 256)) for _ in range(count)]
