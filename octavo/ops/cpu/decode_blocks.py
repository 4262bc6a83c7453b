"""Decoding rows of GGUF's blocks: a weight row as plain numbers along the depth, rounded to the dtype of the product.

The layouts are told in octavo/ops/gguf_blocks.py; each decoder here takes one block and gives the same numbers bit for bit.
"""

import functools

from octavo.ops import gguf_blocks
from octavo.ops.cpu import codes, compile, features, vectors
from octavo.ops.gguf_blocks import IQ4, MXFP4

NUM_ADDRESSES = 2  # the weight, bytes of a row


def addresses(layout, tensors):
    """The NUM_ADDRESSES numbers of a weight that a kernel's arguments hold."""
    return tensors[0].data_ptr(), tensors[0].shape[1]


@functools.cache
def row(layout, dtype):
    """decode(arguments, first, row, columns, out): row `row` of the weight at arguments[first ..] as `columns` numbers of `dtype`."""
    elements, size_bytes = gguf_blocks.SIZES[layout.number_format]
    size = vectors.SIZES[dtype]
    block = BLOCKS[layout.number_format](dtype, features.lanes(), size)

    @compile.inner
    def decode(a, first, row, columns, out):
        source = a[first] + row * a[first + 1]
        for index in range(columns // elements):
            block(source + index * size_bytes, out + index * elements * size)

    return decode


def _nibbles(high_bits_at, values_at, offset, has_minimum):
    """Q4_0, Q4_1, Q5_0, Q5_1: a scale, perhaps a minimum, perhaps fifth bits, 16 bytes of nibbles."""

    def build(dtype, lanes, size):
        load, spread, store, splat = codes.load_bits(lanes, 15), codes.spread_bits(lanes), vectors.store(dtype, lanes), vectors.splat(lanes)
        single, read_half, read_word = vectors.single, codes.read_half, codes.read_word
        has_fifth = high_bits_at > 0

        @compile.inner
        def block(source, out):
            scale = splat(read_half(source))
            minimum = splat(read_half(source + 2) if has_minimum else single(0.0))
            word = read_word(source + high_bits_at) if has_fifth else 0
            shift, sixteen = splat(single(offset)), splat(single(16.0))
            for half in range(2):
                lane = 0
                while lane < 16:
                    number = load(source + values_at + lane, half * 4)
                    if has_fifth:
                        number = number + spread(word, half * 16 + lane) * sixteen
                    if has_minimum:
                        number = number * scale + minimum
                    else:
                        number = (number - shift) * scale
                    store(out + (half * 16 + lane) * size, number)
                    lane += lanes

        return block

    return build


def _q8_0(dtype, lanes, size):
    load, store, splat, read_half = codes.load_bits(lanes, 255, True), vectors.store(dtype, lanes), vectors.splat(lanes), codes.read_half

    @compile.inner
    def block(source, out):
        scale = splat(read_half(source))
        lane = 0
        while lane < 32:
            store(out + lane * size, load(source + 2 + lane, 0) * scale)
            lane += lanes

    return block


def _k(has_fifth):
    """Q4_K and Q5_K: eight sub-blocks of 32 with 6 bit scales and minimums."""
    values_at = 48 if has_fifth else 16

    def build(dtype, lanes, size):
        load, bit, store, splat = codes.load_bits(lanes, 15), codes.load_bits(lanes, 1), vectors.store(dtype, lanes), vectors.splat(lanes)
        single, read_half, read_byte = vectors.single, codes.read_half, codes.read_byte

        @compile.inner
        def block(source, out):
            d, least = read_half(source), read_half(source + 2)
            sixteen = splat(single(16.0))
            for sub in range(8):
                if sub < 4:
                    scale, minimum = read_byte(source + 4 + sub) & 63, read_byte(source + 8 + sub) & 63
                else:
                    both = read_byte(source + 8 + sub)
                    scale = (both & 15) | ((read_byte(source + sub) >> 6) << 4)
                    minimum = (both >> 4) | ((read_byte(source + 4 + sub) >> 6) << 4)
                factor, shift = splat(single(single(scale) * d)), splat(single(single(minimum) * least))
                values = source + values_at + sub // 2 * 32
                lane = 0
                while lane < 32:
                    number = load(values + lane, sub % 2 * 4)
                    if has_fifth:
                        number = number + bit(source + 16 + lane, sub) * sixteen
                    store(out + (sub * 32 + lane) * size, number * factor - shift)
                    lane += lanes

        return block

    return build


def _q6_k(dtype, lanes, size):
    """Two halves of 128, each four runs of 32: low nibbles, two high bits, a scale for 16."""
    load, high, store, splat = codes.load_bits(lanes, 15), codes.load_bits(lanes, 3), vectors.store(dtype, lanes), vectors.splat(lanes)
    single, read_half, read_signed = vectors.single, codes.read_half, codes.read_signed_byte

    @compile.inner
    def block(source, out):
        d = read_half(source + 208)
        sixteen, half_range = splat(single(16.0)), splat(single(32.0))
        for half in range(2):
            for run in range(4):
                low_at = source + half * 64 + run % 2 * 32
                high_at = source + 128 + half * 32
                lane = 0
                while lane < 32:
                    index = half * 128 + run * 32 + lane
                    factor = splat(single(read_signed(source + 192 + index // 16) * d))
                    number = load(low_at + lane, run // 2 * 4) + high(high_at + lane, run * 2) * sixteen - half_range
                    store(out + index * size, number * factor)
                    lane += lanes

    return block


def _q2_k(dtype, lanes, size):
    """Two halves of 128, each four runs of 32 of two bits; a scale and a minimum for 16."""
    load, store, splat = codes.load_bits(lanes, 3), vectors.store(dtype, lanes), vectors.splat(lanes)
    single, read_half, read_byte = vectors.single, codes.read_half, codes.read_byte

    @compile.inner
    def block(source, out):
        d, least = read_half(source + 80), read_half(source + 82)
        for run in range(8):
            lane = 0
            while lane < 32:
                both = read_byte(source + run * 2 + lane // 16)
                factor, shift = splat(single(single(both & 15) * d)), splat(single(single(both >> 4) * least))
                number = load(source + 16 + run // 4 * 32 + lane, run % 4 * 2)
                store(out + (run * 32 + lane) * size, number * factor - shift)
                lane += lanes

    return block


def _q3_k(dtype, lanes, size):
    """As Q2_K, with third bits and 6 bit scales without minimums."""
    load, third, store, splat = codes.load_bits(lanes, 3), codes.load_bits(lanes, 1), vectors.store(dtype, lanes), vectors.splat(lanes)
    single, read_half, read_byte = vectors.single, codes.read_half, codes.read_byte

    @compile.inner
    def block(source, out):
        d, four = read_half(source + 108), splat(single(4.0))
        for run in range(8):
            lane = 0
            while lane < 32:
                index = run * 2 + lane // 16
                low = (read_byte(source + 96 + index % 8) >> (index // 8 * 4)) & 15
                high = (read_byte(source + 104 + index % 4) >> (index // 4 * 2)) & 3
                factor = splat(single(single((low | (high << 4)) - 32) * d))
                number = load(source + 32 + run // 4 * 32 + lane, run % 4 * 2) + third(source + lane, run) * four - four
                store(out + (run * 32 + lane) * size, number * factor)
                lane += lanes

    return block


def _table(table, values_at, reads_power):
    """IQ4_NL and MXFP4: a scale, 16 bytes of places in a table."""

    def build(dtype, lanes, size):
        load, store, splat = codes.look_up_nibbles(lanes, table), vectors.store(dtype, lanes), vectors.splat(lanes)
        read = codes.read_half_power if reads_power else codes.read_half

        @compile.inner
        def block(source, out):
            scale = splat(read(source))
            for half in range(2):
                lane = 0
                while lane < 16:
                    store(out + (half * 16 + lane) * size, load(source + values_at + lane, half * 4) * scale)
                    lane += lanes

        return block

    return build


def _iq4_xs(dtype, lanes, size):
    """Eight sub-blocks of 32 with 6 bit scales."""
    load, store, splat = codes.look_up_nibbles(lanes, IQ4), vectors.store(dtype, lanes), vectors.splat(lanes)
    single, read_half, read_byte = vectors.single, codes.read_half, codes.read_byte

    @compile.inner
    def block(source, out):
        d = read_half(source)
        for sub in range(8):
            low = (read_byte(source + 4 + sub // 2) >> (sub % 2 * 4)) & 15
            high = (read_byte(source + 2 + sub // 4) >> (sub % 4 * 2)) & 3
            factor = splat(single(single((low | (high << 4)) - 32) * d))
            for half in range(2):
                lane = 0
                while lane < 16:
                    store(out + (sub * 32 + half * 16 + lane) * size, load(source + 8 + sub * 16 + lane, half * 4) * factor)
                    lane += lanes

    return block


BLOCKS = {
    "Q4_0": _nibbles(0, 2, 8.0, False),
    "Q4_1": _nibbles(0, 4, 0.0, True),
    "Q5_0": _nibbles(2, 6, 16.0, False),
    "Q5_1": _nibbles(4, 8, 0.0, True),
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _k(False),
    "Q5_K": _k(True),
    "Q6_K": _q6_k,
    "IQ4_NL": _table(IQ4, 2, False),
    "IQ4_XS": _iq4_xs,
    "MXFP4": _table(MXFP4, 1, True),
}
