"""rope_store: each token turns its query and key heads and puts its key and value where the attention kernel reads them."""

import numpy as np
import torch
from numba import types

from octavo.ops.cpu import cache_store, features, vectors
from octavo.ops.cpu.compile import inner, kernel
from octavo.ops.cpu.pool import Arguments
from octavo.ops.pages import TILE
from octavo.ops.rope_store import Facts

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_GRAIN = 8192  # numbers below which a second thread costs more than it saves

int16s = vectors._pointer_to(types.int16)


def _rotation(dtype: str, interleaved: bool):
    """rotate(x, table, half): one head at address x by one row of the table, cosines and sines each `half` wide."""
    lanes, size = features.lanes(), vectors.SIZES[dtype]
    load, load_part, store, store_part = (f(dtype, lanes) for f in (vectors.load, vectors.load_part, vectors.store, vectors.store_part))
    angle, angle_part = vectors.load("float32", lanes), vectors.load_part("float32", lanes)
    read, write, read_angle = vectors.read(dtype), vectors.write(dtype), vectors.read("float32")

    @inner
    def rotate_halves(x, table, half):
        i = 0
        while i + lanes <= half:
            at, other = x + i * size, x + (half + i) * size
            cos, sin = angle(table + i * 4), angle(table + (half + i) * 4)
            first, second = load(at), load(other)
            store(at, first * cos - second * sin)
            store(other, second * cos + first * sin)
            i += lanes
        if i < half:
            at, other, rest = x + i * size, x + (half + i) * size, half - i
            cos, sin = angle_part(table + i * 4, rest), angle_part(table + (half + i) * 4, rest)
            first, second = load_part(at, rest), load_part(other, rest)
            store_part(at, first * cos - second * sin, rest)
            store_part(other, second * cos + first * sin, rest)

    @inner
    def rotate_pairs(x, table, half):
        for i in range(half):
            at = x + 2 * i * size
            cos, sin = read_angle(table + i * 4), read_angle(table + (half + i) * 4)
            first, second = read(at), read(at + size)
            write(at, first * cos - second * sin)
            write(at + size, second * cos + first * sin)

    return rotate_pairs if interleaved else rotate_halves


def _storing(dtype: str, cache: str):
    """store_token(a, key, value, page, offset, space): all heads of a token as plain numbers; octavo/ops/pages.py has the strides."""
    size, cache_size = vectors.SIZES[dtype], vectors.SIZES[cache]
    pair, read, write = 4 // cache_size, vectors.read(dtype), vectors.write(cache)
    is_same = dtype == cache

    @inner
    def store_key(x, page, head_dim):
        if is_same:  # four bytes are one pair, or one float32
            source, target = vectors.int32s(x), vectors.int32s(page)
            for i in range(head_dim // pair):
                target[i * TILE] = source[i]
        else:
            for i in range(head_dim):
                write(page + (i // pair) * 4 * TILE + (i % pair) * cache_size, read(x + i * size))

    @inner
    def store_value(x, page, head_dim):
        if is_same and pair == 2:
            source, target = int16s(x), int16s(page)
            for i in range(head_dim):
                target[i * 2] = source[i]
        else:
            for i in range(head_dim):
                write(page + i * 4, read(x + i * size))

    @inner
    def store_token(a, key, value, page, offset, space):
        kv_heads, head_dim, block_size = a[15], a[16], a[17]
        head_bytes = block_size * head_dim * cache_size
        to_key = page + (offset // TILE) * TILE * head_dim * cache_size + (offset % TILE) * 4
        to_value = page + kv_heads * head_bytes + (offset // pair) * head_dim * 4 + (offset % pair) * cache_size
        for head in range(kv_heads):
            store_key(key + head * a[5], to_key + head * head_bytes, head_dim)
            store_value(value + head * a[8], to_value + head * head_bytes, head_dim)

    return store_token


def build(dtype: str, code: str, scale_kind: str, space_bytes: int, interleaved: bool):
    """A body over tokens. arguments: query, its token and head strides, the same of key and value, cos_sin, positions, pages, bytes
    between pages, slots, num_heads, num_kv_heads, head_dim, block_size, rotary_dim, scales.

    space_bytes: for one vector on its way to codes.
    """
    rotate = _rotation(dtype, interleaved)
    store_token = _storing(dtype, code) if scale_kind == "none" else cache_store.storing(dtype, code, scale_kind)
    take_space = vectors.stack(space_bytes)

    def body(begin, end, arguments):
        a = vectors.int64s(arguments)
        positions, slots = vectors.int32s(a[10]), vectors.int64s(a[13])
        num_heads, num_kv_heads, block_size, rotary_dim = a[14], a[15], a[17], a[18]
        space = take_space()
        for token in range(begin, end):
            query, key, value = a[0] + token * a[1], a[3] + token * a[4], a[6] + token * a[7]
            if rotary_dim > 0:
                table = a[9] + np.int64(positions[token]) * rotary_dim * 4
                for head in range(num_heads):
                    rotate(query + head * a[2], table, rotary_dim >> 1)
                for head in range(num_kv_heads):
                    rotate(key + head * a[5], table, rotary_dim >> 1)
            slot = slots[token]
            if slot < 0:
                continue
            block = slot // block_size
            store_token(a, key, value, a[11] + block * a[12], slot - block * block_size, space)

    return body


class Implementation:
    """rope_store in numba, for pages of tiles. The key is turned in place."""

    def __init__(self, facts: Facts) -> None:
        page = facts.layout
        kept = page.format
        space = 8 if kept.is_plain else cache_store.SIDE + page.head_dim
        self._kernel = kernel(build, DTYPES[facts.dtype], kept.code, kept.scale, space, facts.interleaved)
        self._arguments = Arguments(20)
        self._shape = (facts.num_heads, page.num_kv_heads, page.head_dim, page.block_size, facts.rotary_dim)
        self._ones = torch.ones(2)
        self._rotary_dim = facts.rotary_dim
        self._size = facts.dtype.itemsize
        self._grain = max(1, _GRAIN // ((facts.num_heads + 2 * page.num_kv_heads) * page.head_dim))

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if facts.dtype not in DTYPES:
            return f"dtype {facts.dtype} is neither float32 nor bfloat16"
        page = facts.layout
        if page.format.code == "float16":
            return "the cache in float16 is neither in float32 nor bfloat16 nor coded"
        if not page.format.is_plain and (page.head_dim % TILE or page.format.side_bytes(page.head_dim) > cache_store.SIDE):
            return f"head dimension {page.head_dim} of a coded cache is not a multiple of {TILE}, or more than {TILE * cache_store.SIDE}"
        if facts.layout.kind != "tiles":
            return f"pages are {facts.layout.kind}, not tiles"
        return None

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cos_sin: torch.Tensor | None,
        positions: torch.Tensor,
        pages: torch.Tensor,
        slots: torch.Tensor,
        scales: torch.Tensor | None = None,
    ) -> None:
        size = self._size
        heads: list[int] = []
        for x in (query, key, value):
            heads += (x.data_ptr(), x.stride(0) * size, x.stride(1) * size)
        if cos_sin is None and self._rotary_dim:
            raise ValueError(f"rope_store of rotary_dim {self._rotary_dim} was called without its table of angles")
        table = 0 if cos_sin is None else cos_sin.data_ptr()
        places = (positions.data_ptr(), pages.data_ptr(), pages.stride(0), slots.data_ptr())
        self._arguments.set(*heads, table, *places, *self._shape, (self._ones if scales is None else scales).data_ptr())
        self._kernel(query.shape[0], self._grain, self._arguments)
