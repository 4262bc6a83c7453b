"""Cache codes in registers: numbers to codes as octavo.ops.cache_codes rounds them, and codes of two tokens or dimensions to pairs."""

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.ops.cache_codes import LARGEST, NAN
from octavo.ops.cpu import codes, vectors
from octavo.ops.cpu.vectors import FloatVector, at, constant, f32, i8, i16, i32, i64

_SHIFT = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer, ties to even, in the low bits
_SHIFT_BITS = 0x4B400000
_FLOATS = {"float8_e4m3": (20, 7), "float8_e5m2": (21, 15)}  # bits that are rounded away, bias of the exponent


def _integer(b, x):
    """The nearest integer of each lane below 2**22, as int32."""
    lanes = x.type.count
    shifted = b.fadd(x, constant(f32, lanes, _SHIFT))
    return b.sub(b.bitcast(shifted, ir.VectorType(i32, lanes)), constant(i32, lanes, _SHIFT_BITS))


def _clamped(b, x, low, high):
    lanes = x.type.count
    low, high = constant(f32, lanes, low), constant(f32, lanes, high)
    x = b.select(b.fcmp_ordered(">", x, low), x, low)
    return b.select(b.fcmp_ordered("<", x, high), x, high)


def code_value(b, x, code):
    """int32 vector of the codes of a float32 vector."""
    lanes = x.type.count
    largest = LARGEST[code]

    def number(value):
        return constant(i32, lanes, value)

    if code == "int8":
        return b.and_(_integer(b, _clamped(b, x, -largest, largest)), number(0xFF))
    if code == "uint4":
        return _integer(b, _clamped(b, x, 0.0, largest))
    bits = b.bitcast(x, ir.VectorType(i32, lanes))
    size = b.and_(bits, number(0x7FFFFFFF))
    if code in _FLOATS:
        return _small_float(b, bits, size, code)
    size = _clamped(b, b.bitcast(size, x.type), 0.0, largest)
    fine = _integer(b, b.fmul(size, constant(f32, lanes, 2.0)))
    middle = b.add(_integer(b, size), number(2))
    coarse = b.add(_integer(b, b.fmul(size, constant(f32, lanes, 0.5))), number(4))
    above = b.select(b.fcmp_ordered("<", size, constant(f32, lanes, 4.0)), middle, coarse)
    result = b.select(b.fcmp_ordered("<", size, constant(f32, lanes, 2.0)), fine, above)
    return b.or_(result, b.shl(b.lshr(bits, number(31)), number(3)))


def _small_float(b, bits, size, code):
    """bits of float32 numbers, size: without their signs. Sizes are ordered as their bits are; nan comes after all."""
    lanes = bits.type.count
    dropped, bias = _FLOATS[code]

    def number(value):
        return constant(i32, lanes, value)

    def bits_of(value):
        return b.bitcast(constant(f32, lanes, value), bits.type)

    is_nan = b.icmp_signed(">", size, number(0x7F800000))
    size = b.select(b.icmp_signed(">", size, bits_of(LARGEST[code])), bits_of(LARGEST[code]), size)
    odd = b.and_(b.lshr(size, number(dropped)), number(1))
    rounded = b.lshr(b.add(size, b.add(odd, number((1 << (dropped - 1)) - 1))), number(dropped))
    normal = b.sub(rounded, number((127 - bias) << (23 - dropped)))
    least = 2.0 ** (1 - bias)  # of the normal numbers; below, codes are multiples of one step
    steps = b.fmul(b.bitcast(size, ir.VectorType(f32, lanes)), constant(f32, lanes, 2.0 ** (23 - dropped) / least))
    result = b.select(b.icmp_signed("<", size, bits_of(least)), _integer(b, steps), normal)
    result = b.or_(result, b.and_(b.lshr(bits, number(24)), number(0x80)))
    return b.select(is_nan, number(NAN), result)


@functools.cache
def store_codes(code, lanes):
    """store_codes(address, vector): the code of each lane, a byte each."""

    @intrinsic
    def store_some_codes(typing_context, address, vector):
        def generate(context, b, s, args):
            found = b.trunc(code_value(b, args[1], code), ir.VectorType(i8, lanes))
            b.store(found, at(b, args[0], found.type), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, FloatVector(lanes)), generate

    return store_some_codes


@intrinsic
def absolute(typing_context, vector):
    """The size of each lane."""

    def generate(context, b, s, args):
        lanes = args[0].type.count
        bits = b.and_(b.bitcast(args[0], ir.VectorType(i32, lanes)), constant(i32, lanes, 0x7FFFFFFF))
        return b.bitcast(bits, args[0].type)

    return vector(vector), generate


# -- reading


@functools.cache
def load_pair(code, lanes, which):
    """load_pair(address) -> vector: of `lanes` pairs of codes the numbers of the first (which 0) or the second.

    Codes of 8 bits: a pair is two bytes. Codes of 4 bits: two halves of one byte, the low one first.
    """
    is_half = code in ("uint4", "float4_e2m1")

    @intrinsic
    def load_numbers(typing_context, address):
        def generate(context, b, s, args):
            unit = i8 if is_half else i16
            wide = b.zext(b.load(at(b, args[0], ir.VectorType(unit, lanes)), align=1), ir.VectorType(i32, lanes))
            shift = which * (4 if is_half else 8)
            wide = b.and_(b.lshr(wide, constant(i32, lanes, shift)), constant(i32, lanes, 15 if is_half else 0xFF))
            return _number(b, wide, code)

        return FloatVector(lanes)(types.int64), generate

    return load_numbers


@functools.cache
def load_bytes(code, lanes):
    """load_bytes(address) -> vector: the numbers of `lanes` codes, a byte each."""

    @intrinsic
    def load_numbers(typing_context, address):
        def generate(context, b, s, args):
            raw = b.load(at(b, args[0], ir.VectorType(i8, lanes)), align=1)
            return _number(b, b.zext(raw, ir.VectorType(i32, lanes)), code)

        return FloatVector(lanes)(types.int64), generate

    return load_numbers


def _number(b, found, code):
    """float32 vector of codes, int32."""
    lanes = found.type.count
    if code == "int8":
        return b.sitofp(b.ashr(b.shl(found, constant(i32, lanes, 24)), constant(i32, lanes, 24)), ir.VectorType(f32, lanes))
    if code != "float4_e2m1":
        return codes.value_of(b, found, code)
    # 2 bits of exponent and one of fraction stand as float32's, 126 powers of 2 too low
    size = b.shl(b.and_(found, constant(i32, lanes, 7)), constant(i32, lanes, 22))
    size = b.fmul(b.bitcast(size, ir.VectorType(f32, lanes)), constant(f32, lanes, 2.0**126))
    sign = b.shl(b.and_(found, constant(i32, lanes, 8)), constant(i32, lanes, 28))
    return b.bitcast(b.or_(b.bitcast(size, found.type), sign), size.type)


@functools.cache
def load_half(lanes, which):
    """load_half(address) -> vector: of `lanes` pairs of bf16 numbers the first (which 0) or the second."""

    @intrinsic
    def load_numbers(typing_context, address):
        def generate(context, b, s, args):
            return vectors.split_pairs_value(b, b.load(at(b, args[0], ir.VectorType(f32, lanes)), align=2))[which]

        return FloatVector(lanes)(types.int64), generate

    return load_numbers


@intrinsic
def store_pairs(typing_context, address, even, odd):
    """Two vectors as one of bf16 pairs."""

    def generate(context, b, s, args):
        lanes = args[1].type.count
        wide = ir.VectorType(i32, lanes)
        low, high = (b.zext(vectors.narrow_value(b, part), wide) for part in args[1:])
        b.store(b.or_(low, b.shl(high, constant(i32, lanes, 16))), at(b, args[0], wide), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, even, odd), generate


@intrinsic
def read_unsigned(typing_context, address):
    """The byte at an address."""
    return types.int64(types.int64), lambda context, b, s, args: b.zext(b.load(at(b, args[0], i8), align=1), i64)


@functools.cache
def copy_unit(size_bytes):
    """copy_unit(to, source): so many bytes."""

    @intrinsic
    def copy(typing_context, to, source):
        def generate(context, b, s, args):
            kind = ir.IntType(8 * size_bytes)
            b.store(b.load(at(b, args[1], kind), align=1), at(b, args[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return copy


@intrinsic
def store_halves(typing_context, to, low, high):
    """One byte of the codes at two addresses."""

    def generate(context, b, s, args):
        low, high = (b.load(at(b, address, i8), align=1) for address in args[1:])
        b.store(b.or_(low, b.shl(high, i8(4))), at(b, args[0], i8), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


_IN_PAIRS = ("int8", "float8_e4m3", "float8_e5m2")


def is_paired(code):
    """Whether codes of this kind become pairs of bf16 by `decode_pairs`."""
    return code in _IN_PAIRS


def pair_scale(code):
    """By how much the steps of decode_pairs must be larger than those of the codes' own values."""
    return 256.0 if code == "float8_e4m3" else 1.0


def _floats_of(b, raw, code):
    """float32 numbers of 32 codes, divided by pair_scale."""
    if code == "int8":
        return b.sitofp(raw, ir.VectorType(f32, 32))
    high = b.shl(b.zext(raw, ir.VectorType(i16, 32)), constant(i16, 32, 8))
    if code == "float8_e4m3":  # 4 bits of exponent stand as float16's 5, which is 8 powers of 2 too low
        size = b.and_(b.lshr(high, constant(i16, 32, 1)), constant(i16, 32, 0x3F80))
        found = b.or_(b.and_(high, constant(i16, 32, 0x8000)), size)
        high = b.select(b.icmp_unsigned("==", size, constant(i16, 32, 0x3F80)), constant(i16, 32, 0x7E00), found)
    return b.fpext(b.bitcast(high, ir.VectorType(ir.HalfType(), 32)), ir.VectorType(f32, 32))


@functools.cache
def decode_pairs(code, is_apart):
    """decode(to, first, second, steps, later): 32 codes, times their steps, as bf16. Only for CPUs that convert bf16.

    is_apart: 16 codes at `first` and 16 at `second`, taken in turn; else 32 in a row at `first`, the steps of the last 16 in `later`.
    """

    @intrinsic
    def decode(typing_context, to, first, second, steps, later):
        def generate(context, b, s, args):
            to, first, second, steps, later = args
            kind = steps.type
            halves = [list(range(start, start + 16)) for start in (0, 16)]
            if is_apart:
                parts = [b.load(at(b, place, ir.VectorType(i8, 16)), align=1) for place in (first, second)]
                order = [lane // 2 + 16 * (lane % 2) for lane in range(32)]
                raw = b.shuffle_vector(*parts, ir.Constant(ir.VectorType(i32, 32), order))
            else:
                raw = b.load(at(b, first, ir.VectorType(i8, 32)), align=1)
            wide = _floats_of(b, raw, code)
            undefined = ir.Constant(wide.type, ir.Undefined)
            low, high = (b.shuffle_vector(wide, undefined, ir.Constant(ir.VectorType(i32, 16), half)) for half in halves)
            low, high = b.fmul(low, steps), b.fmul(high, steps if is_apart else later)
            pairs = ir.VectorType(vectors.BFloat(), 32)
            narrow = vectors.declare(b, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", pairs, [kind, kind])
            packed = b.bitcast(b.call(narrow, [high, low]), ir.VectorType(i32, 16))
            b.store(packed, at(b, to, packed.type), align=4)
            return context.get_dummy_value()

        vector = FloatVector(16)
        return types.void(types.int64, types.int64, types.int64, vector, vector), generate

    return decode


@functools.cache
def twice(which):
    """twice(vector) -> vector: each of its first eight lanes (which 0), or of its last eight, two times."""

    @intrinsic
    def double(typing_context, vector):
        def generate(context, b, s, args):
            order = [lane // 2 + 8 * which for lane in range(16)]
            return b.shuffle_vector(args[0], ir.Constant(args[0].type, ir.Undefined), ir.Constant(ir.VectorType(i32, 16), order))

        return vector(vector), generate

    return double


@intrinsic
def in_turn(typing_context, address):
    """The two float32 at an address, in turn in all lanes."""

    def generate(context, b, s, args):
        both = vectors.splat_value(b, b.load(at(b, args[0], i64), align=4), 8)
        return b.bitcast(both, ir.VectorType(f32, 16))

    return FloatVector(16)(types.int64), generate
