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
