"""Dummy weights: random values in place of a checkpoint's, the same for the same seed and path, whatever the order and the cut."""

import hashlib
from collections.abc import Iterable
from math import prod, sqrt

import torch

from octavo.layers.stored import Stored

CHUNK_ELEMENTS = 1 << 22
_SPREAD = 0.02  # of vectors: around 1 for a norm's weight, around 0 for a bias


def fill(stored: Iterable[Stored], seed: int) -> None:
    """Give every stored parameter random values that keep activations about 1: matrices are uniform with variance 1 / columns. What a
    checkpoint need not have gets its default.
    """
    for one in stored:
        if one.default is not None:
            one.target.fill_(one.default)
        else:
            _fill_one(one, seed)


def _fill_one(one: Stored, seed: int) -> None:
    digest = hashlib.sha256(f"{seed}/{one.path}".encode()).digest()
    random = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    is_vector = len(one.shape) < 2
    bound = _SPREAD if is_vector else sqrt(3 / max(1, one.shape[-1]))
    middle = 1.0 if is_vector and one.path.endswith(".weight") else 0.0
    rows = one.shape[0] if one.shape else 1
    step = rows if one.cut is not None or not one.shape else max(1, CHUNK_ELEMENTS // max(1, prod(one.shape[1:])))
    for start in range(0, rows, step):
        size = min(step, rows - start)
        values = torch.empty((size, *one.shape[1:]) if one.shape else ()).uniform_(middle - bound, middle + bound, generator=random)
        if one.cut is not None:
            one.target.copy_(values.narrow(one.cut.axis, one.cut.start, one.cut.length))
        elif one.shape:
            one.target.narrow(0, start, size).copy_(values)
        else:
            one.target.copy_(values)
