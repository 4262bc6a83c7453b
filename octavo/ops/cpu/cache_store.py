"""Storing coded vectors: a key's or value's numbers become codes and side bytes, which go to their places in a page of tiles."""

import functools

import numpy as np

from octavo.config.cache_formats import GROUP
from octavo.ops.cache_codes import LARGEST
from octavo.ops.cpu import cache_codes, codes, vectors
from octavo.ops.cpu.compile import inner
from octavo.ops.pages import TILE

SIDE = 64  # bytes kept for the side bytes of a vector on their way, before its codes


@functools.cache
def _encoding(dtype: str, code: str, scale_kind: str):
    """encode(x, head_dim, space, scale): the vector at x; its side bytes go to `space` and its codes, one a byte, SIDE behind."""
    size, single = vectors.SIZES[dtype], vectors.single
    load, splat, store = vectors.load(dtype, TILE), vectors.splat(TILE), cache_codes.store_codes(code, TILE)
    store_scale, splat_one = cache_codes.store_codes("float8_e4m3", 1), vectors.splat(1)
    read_scale, write_half, read_half = codes.read_scale("float8_e4m3"), vectors.write("bfloat16"), vectors.read("bfloat16")
    write_single, maximum, reduce_max, reduce_add = vectors.write("float32"), vectors.maximum, vectors.reduce_max, vectors.reduce_add
    absolute, int64s, side = cache_codes.absolute, vectors.int64s, SIDE
    largest, zero, six, steps = np.float32(LARGEST[code]), np.float32(0.0), np.float32(6.0), np.float32(15.0)
    nan, group = np.float32(np.nan), GROUP

    @inner
    def put(x, start, end, space, lowest, step):
        """Codes of (number - lowest) / step; 0 where the step is 0 or nan."""
        low, by = splat(lowest), splat(step)
        for i in range(start, end, TILE):
            if step > zero:
                store(space + side + i, (load(x + i * size) - low) / by)
            else:
                int64s(space + side + i)[0] = 0
                int64s(space + side + i)[1] = 0

    @inner
    def is_broken(x, start, end):
        """Whether a number is not finite: times 0 it is not 0."""
        total = splat(zero)
        for i in range(start, end, TILE):
            total = total + load(x + i * size) * splat(zero)
        return reduce_add(total) != zero

    @inner
    def largest_of(x, start, end):
        top = splat(zero)
        for i in range(start, end, TILE):
            top = maximum(absolute(load(x + i * size)), top)
        return reduce_max(top)

    @inner
    def encode_by_layer(x, head_dim, space, scale):
        by = splat(scale)
        for i in range(0, head_dim, TILE):
            store(space + side + i, load(x + i * size) / by)

    @inner
    def encode_signed(x, head_dim, space, scale):
        step = nan if is_broken(x, 0, head_dim) else single(largest_of(x, 0, head_dim) / largest)
        write_single(space, step)
        put(x, 0, head_dim, space, zero, step)

    @inner
    def encode_unsigned(x, head_dim, space, scale):
        high, low = splat(-largest_of(x, 0, head_dim)), splat(-largest_of(x, 0, head_dim))
        for i in range(0, head_dim, TILE):
            numbers = load(x + i * size)
            high, low = maximum(numbers, high), maximum(splat(zero) - numbers, low)
        top, bottom = reduce_max(high), -reduce_max(low)
        write_half(space, single(zero + single(single(top - bottom) / steps)))  # never -0
        write_half(space + 2, single(zero + bottom))
        step, lowest = read_half(space), read_half(space + 2)
        if is_broken(x, 0, head_dim) or single(step * zero) != zero or single(lowest * zero) != zero:
            step = nan
            write_half(space, nan)
            write_half(space + 2, nan)
        put(x, 0, head_dim, space, lowest, step)

    @inner
    def encode_groups(x, head_dim, space, scale):
        for start in range(0, head_dim, group):
            place = space + start // group
            store_scale(place, splat_one(single(largest_of(x, start, start + group) / single(scale * six))))
            if is_broken(x, start, start + group):
                store_scale(place, splat_one(nan))
            put(x, start, start + group, space, zero, single(read_scale(place, 0) * scale))

    if scale_kind == "layer":
        return encode_by_layer
    if scale_kind == "group":
        return encode_groups
    return encode_unsigned if code == "uint4" else encode_signed


def storing(dtype: str, code: str, scale_kind: str):
    """store_token(a, key, value, page, offset, space): all heads of a token. a: the arguments of the kernel rope_store; scales at a[19]."""
    encode = _encoding(dtype, code, scale_kind)
    is_half, is_group, has_side = code in ("uint4", "float4_e2m1"), scale_kind == "group", scale_kind != "layer"
    copy_byte, copy_pair, copy_word, store_halves = (*(cache_codes.copy_unit(n) for n in (1, 2, 4)), cache_codes.store_halves)
    floats, side = vectors.floats, SIDE

    @inner
    def store_key(space, to, head_dim):
        found = space + side
        for i in range(0, head_dim, 2):
            if is_half:
                store_halves(to + (i >> 1) * TILE, found + i, found + i + 1)
            else:
                copy_pair(to + i * TILE, found + i)

    @inner
    def store_row(space, to, head_dim):
        found, half = space + side, head_dim >> 1
        if is_half:
            for i in range(half):
                store_halves(to + i, found + i, found + half + i)
        else:
            for i in range(0, head_dim, 2):
                copy_pair(to + i, found + i)

    @inner
    def store_side(space, to, count, apart):
        if is_group:
            for i in range(count):
                copy_byte(to + i * apart, space + i)
        elif has_side:
            copy_word(to, space)

    @inner
    def store_token(a, key, value, page, offset, space):
        kv_heads, head_dim, block_size = a[15], a[16], a[17]
        row = head_dim >> 1 if is_half else head_dim
        beside = head_dim // GROUP if is_group else (4 if has_side else 0)
        codes_bytes = kv_heads * block_size * row
        part = codes_bytes + kv_heads * block_size * beside
        within = offset % TILE
        for head in range(kv_heads):
            first = head * block_size
            encode(key + head * a[5], head_dim, space, floats(a[19])[0])
            store_key(space, page + first * row + (offset - within) * row + within * (1 if is_half else 2), head_dim)
            at_side = page + codes_bytes + first * beside
            if is_group:
                store_side(space, at_side + (offset - within) * beside + within, beside, TILE)
            else:
                store_side(space, at_side + offset * beside, beside, 1)
            encode(value + head * a[8], head_dim, space, floats(a[19])[1])
            store_row(space, page + part + (first + offset) * row, head_dim)
            store_side(space, page + part + codes_bytes + (first + offset) * beside, beside, 1)

    return store_token
