"""Decoding a coded cache as attention goes: the tiles of one span become plain tiles in a thread's own space, and their addresses are told.

What a tile becomes depends on its bytes alone. Numbers are rounded to the format that the product takes: bf16 for dot and pairs.
"""

import functools

from octavo.config.cache_formats import GROUP
from octavo.ops.cpu import cache_codes, codes, vectors
from octavo.ops.cpu.attention_tiles import AHEAD, PAIR
from octavo.ops.cpu.compile import inner
from octavo.ops.pages import TILE


@functools.cache
def _pair_storing(how: str):
    """store_pair(to, apart, even, odd): two vectors as pairs at `to`, or as float32 at `to` and `apart` bytes behind."""
    store, store_pairs, is_paired = vectors.store("float32", TILE), cache_codes.store_pairs, PAIR[how] == 2

    @inner
    def store_together(to, apart, even, odd):
        store_pairs(to, even, odd)

    @inner
    def store_apart(to, apart, even, odd):
        store(to, even)
        store(to + apart, odd)

    return store_together if is_paired else store_apart


def _keys(how: str, code: str, scale_kind: str):
    """decode(found, side, to, head_dim, scale): a tile of keys, 16 tokens in the lanes."""
    unit = 1 if code in ("uint4", "float4_e2m1") else 2
    load_even, load_odd = (cache_codes.load_pair(code, TILE, which) for which in (0, 1))
    load, splat, store_pair = vectors.load("float32", TILE), vectors.splat(TILE), _pair_storing(how)
    load_step, load_lowest = (cache_codes.load_half(TILE, which) for which in (0, 1))
    load_group = cache_codes.load_bytes("float8_e4m3", TILE)
    has_lowest, group, pair_bytes = code == "uint4", GROUP, 4 * 2 // PAIR[how]
    is_group, is_layer = scale_kind == "group", scale_kind == "layer"

    @inner
    def step_of(side, scale):
        if is_layer or is_group:
            return splat(scale)
        return load_step(side) if has_lowest else load(side)

    @inner
    def decode(found, side, to, head_dim, scale):
        step = step_of(side, scale)
        lowest = load_lowest(side) if has_lowest else splat(scale)
        for i in range(0, head_dim, 2):
            if is_group and i % group == 0:
                step = load_group(side + i // group * TILE) * splat(scale)
            at = found + (i >> 1) * TILE * unit
            even, odd = load_even(at) * step, load_odd(at) * step
            if has_lowest:
                even, odd = even + lowest, odd + lowest
            store_pair(to + (i >> 1) * TILE * pair_bytes, TILE * 4, even, odd)

    return decode


def _values(how: str, code: str, scale_kind: str, lanes: int):
    """decode(found, side, to, head_dim, scale): a tile of values, `lanes` dimensions of two tokens at a time.

    lanes: of a row of 4 bit codes a divisor of half the row.
    """
    is_half, is_single = code in ("uint4", "float4_e2m1"), PAIR[how] == 1
    load_low, load_high = (cache_codes.load_pair(code, lanes, which) for which in (0, 1))
    load_bytes = cache_codes.load_bytes(code, lanes)
    splat, floats = vectors.splat(lanes), vectors.floats
    read_half, read_group = vectors.read("bfloat16"), codes.read_scale("float8_e4m3")
    store, store_pairs, single = vectors.store("float32", lanes), cache_codes.store_pairs, vectors.single
    has_lowest, group = code == "uint4", GROUP
    is_group, is_layer = scale_kind == "group", scale_kind == "layer"
    beside_each = 0 if is_layer else 4

    @inner
    def numbers(found, side, i, head_dim, scale):
        """Of one token, from dimension i."""
        half = head_dim >> 1
        if is_half:
            vector = load_low(found + i) if i < half else load_high(found + i - half)
        else:
            vector = load_bytes(found + i)
        if is_layer:
            return vector * splat(scale)
        if is_group:
            return vector * splat(single(read_group(side, i // group) * scale))
        if has_lowest:
            return vector * splat(read_half(side)) + splat(read_half(side + 2))
        return vector * splat(floats(side)[0])

    @inner
    def decode(found, side, to, head_dim, scale):
        row = head_dim >> 1 if is_half else head_dim
        beside = head_dim // group if is_group else beside_each
        for token in range(0, TILE, 2):
            at, at_side, target = found + token * row, side + token * beside, to + token * head_dim * (4 if is_single else 2)
            for i in range(0, head_dim, lanes):
                even = numbers(at, at_side, i, head_dim, scale)
                odd = numbers(at + row, at_side + beside, i, head_dim, scale)
                if is_single:
                    store(target + i * 4, even)
                    store(target + (head_dim + i) * 4, odd)
                else:
                    store_pairs(target + i * 4, even, odd)

    return decode


def _paired_keys(code: str, scale_kind: str):
    """As _keys, of codes of 8 bits in whole pairs: they lie as their numbers will."""
    decode_pairs, load, splat = cache_codes.decode_pairs(code, False), vectors.load("float32", TILE), vectors.splat(TILE)
    first_half, second_half = cache_codes.twice(0), cache_codes.twice(1)
    more, is_layer = vectors.single(cache_codes.pair_scale(code)), scale_kind == "layer"

    @inner
    def decode(found, side, to, head_dim, scale):
        step = splat(scale) if is_layer else load(side)
        step = step * splat(more)
        low, high = first_half(step), second_half(step)
        for i in range(head_dim >> 1):
            decode_pairs(to + i * TILE * 4, found + i * TILE * 2, 0, low, high)

    return decode


def _paired_values(code: str, scale_kind: str):
    """As _values, of codes of 8 bits."""
    decode_pairs, splat, in_turn = cache_codes.decode_pairs(code, True), vectors.splat(TILE), cache_codes.in_turn
    more, is_layer = vectors.single(cache_codes.pair_scale(code)), scale_kind == "layer"

    @inner
    def decode(found, side, to, head_dim, scale):
        for token in range(0, TILE, 2):
            step = splat(scale) if is_layer else in_turn(side + token * 4)
            step = step * splat(more)
            at, target = found + token * head_dim, to + token * head_dim * 2
            for i in range(0, head_dim, TILE):
                decode_pairs(target + i * 4, at + i, at + head_dim + i, step, step)

    return decode


def tile_finding(how: str, code: str, scale_kind: str, lanes: int, at_decoded: int, decoded_bytes: int):
    """find_tiles(a, table, head, first, count, last, own, key_tiles, value_tiles): see attention_kernel; `a` are its arguments, with the
    layer's scales at a[24]. Keys are decoded to own + at_decoded, values decoded_bytes behind.
    """
    if how == "dot" and cache_codes.is_paired(code) and scale_kind in ("layer", "token_head"):
        decode_keys, decode_values = _paired_keys(code, scale_kind), _paired_values(code, scale_kind)
    else:
        decode_keys, decode_values = _keys(how, code, scale_kind), _values(how, code, scale_kind, lanes)
    is_half, is_group, has_side = code in ("uint4", "float4_e2m1"), scale_kind == "group", scale_kind != "layer"
    int32s, int64s, floats, group = vectors.int32s, vectors.int64s, vectors.floats, GROUP
    number_bytes = 4 if PAIR[how] == 1 else 2
    ahead, prefetch = AHEAD, vectors.prefetch_later

    @inner
    def place_of(a, table, head, tile):
        """The page of a tile, and its first token's place among the vectors of the page."""
        token, block_size = tile * TILE, a[16]
        index = token // block_size
        return a[7] + int32s(table)[index] * a[19], head * block_size + token - index * block_size

    @inner
    def find_tiles(a, table, head, first, count, last, own, key_tiles, value_tiles):
        kv_heads, block_size, head_dim = a[15], a[16], a[23]
        row = head_dim >> 1 if is_half else head_dim
        beside = head_dim // group if is_group else (4 if has_side else 0)
        codes_bytes = kv_heads * block_size * row
        part = codes_bytes + kv_heads * block_size * beside
        key_scale, value_scale = floats(a[24])[0], floats(a[24])[1]
        for tile in range(count):
            page, place = place_of(a, table, head, min(first + tile + ahead, last))
            for at in range(0, TILE * row, 64):
                prefetch(page + place * row + at)
                prefetch(page + part + place * row + at)
            page, place = place_of(a, table, head, first + tile)
            keys = own + at_decoded + tile * TILE * head_dim * number_bytes
            decode_keys(page + place * row, page + codes_bytes + place * beside, keys, head_dim, key_scale)
            values = keys + decoded_bytes
            decode_values(page + part + place * row, page + part + codes_bytes + place * beside, values, head_dim, value_scale)
            int64s(key_tiles)[tile] = keys
            int64s(value_tiles)[tile] = values

    return find_tiles
