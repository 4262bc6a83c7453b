"""Codes: numbers of a few bits in memory as float32 in registers, one at a time or a vector at once."""

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.ops import weights
from octavo.ops.cpu import features, vectors
from octavo.ops.cpu.vectors import FloatVector, at, constant, f32, i8, i16, i32, i64

_FLOAT_BITS = {"float8_e4m3": (20, 120, 0x7F), "float8_e5m2": (21, 112, None)}  # places up to float32's exponent, its missing bias, nan


@functools.cache
def load_bits(lanes, mask, signed=False):
    """load_bits(address, shift) -> vector: `lanes` bytes, each shifted right by `shift` bits and masked; signed: as int8, shift 0."""

    @intrinsic
    def load_some_bits(typing_context, address, shift):
        def generate(context, b, s, args):
            raw = b.load(at(b, args[0], ir.VectorType(i8, lanes)), align=1)
            wide = ir.VectorType(i32, lanes)
            if signed:
                return b.sitofp(b.sext(raw, wide), ir.VectorType(f32, lanes))
            places = vectors.splat_value(b, b.trunc(args[1], i32), lanes)
            bits = b.and_(b.lshr(b.zext(raw, wide), places), constant(i32, lanes, mask))
            return b.sitofp(bits, ir.VectorType(f32, lanes))

        return FloatVector(lanes)(types.int64, types.int64), generate

    return load_some_bits


@functools.cache
def look_up_nibbles(lanes, table):
    """look_up_nibbles(address, shift) -> vector: `lanes` bytes, each shifted right by `shift` bits; the table's number at its low half."""

    @intrinsic
    def look_up(typing_context, address, shift):
        def generate(context, b, s, args):
            raw = b.load(at(b, args[0], ir.VectorType(i8, lanes)), align=1)
            places = vectors.splat_value(b, b.trunc(args[1], i32), lanes)
            wide = b.zext(raw, ir.VectorType(i32, lanes))
            return _look_up(b, b.and_(b.lshr(wide, places), constant(i32, lanes, 15)), table)

        return FloatVector(lanes)(types.int64, types.int64), generate

    return look_up


@functools.cache
def spread_bits(lanes):
    """spread_bits(word, start) -> vector: bit start + lane of a 32 bit word, as 0 or 1."""

    @intrinsic
    def spread(typing_context, word, start):
        def generate(context, b, s, args):
            word = vectors.splat_value(b, b.trunc(args[0], i32), lanes)
            first = vectors.splat_value(b, b.trunc(args[1], i32), lanes)
            places = b.add(first, ir.Constant(ir.VectorType(i32, lanes), list(range(lanes))))
            return b.sitofp(b.and_(b.lshr(word, places), constant(i32, lanes, 1)), ir.VectorType(f32, lanes))

        return FloatVector(lanes)(types.int64, types.int64), generate

    return spread


@functools.cache
def load_codes(code, lanes):
    """load_codes(address, column) -> vector: the values of `lanes` codes of the row at `address`, from `column`, a multiple of them."""
    bits, _ = weights.CODES[code]
    if bits not in (2, 4, 8):
        raise ValueError(f"codes of {bits} bits are read one at a time")

    @intrinsic
    def load_values(typing_context, address, column):
        def generate(context, b, s, args):
            address, column = args
            start = b.add(address, b.lshr(b.mul(column, i64(bits)), i64(3)))
            count, each = lanes * bits // 8, 8 // bits
            raw = b.load(at(b, start, ir.VectorType(i8, count)), align=1)
            wide = b.zext(raw, ir.VectorType(i32, count))
            if each > 1:
                order = ir.Constant(ir.VectorType(i32, lanes), [lane // each for lane in range(lanes)])
                wide = b.shuffle_vector(wide, ir.Constant(wide.type, ir.Undefined), order)
                places = ir.Constant(ir.VectorType(i32, lanes), [lane % each * bits for lane in range(lanes)])
                wide = b.and_(b.lshr(wide, places), constant(i32, lanes, 2**bits - 1))
            return value_of(b, wide, code)

        return FloatVector(lanes)(types.int64, types.int64), generate

    return load_values


@functools.cache
def read_code(code):
    """read_code(address, column) -> float32: the value of one code of the row at `address`."""
    bits, _ = weights.CODES[code]

    @intrinsic
    def read_value(typing_context, address, column):
        def generate(context, b, s, args):
            address, column = args
            position = b.mul(column, i64(bits))
            low = b.add(address, b.lshr(position, i64(3)))
            # a code that crosses a byte has its rest in the next one; one that does not is read twice, within the row
            end = b.lshr(b.add(position, i64(bits - 1)), i64(3))
            high = b.add(address, end)
            first, last = (b.zext(b.load(at(b, place, i8), align=1), i32) for place in (low, high))
            pair = b.or_(first, b.select(b.icmp_signed("==", low, high), i32(0), b.shl(last, i32(8))))
            shift = b.trunc(b.and_(position, i64(7)), i32)
            one = b.and_(b.lshr(pair, shift), i32(2**bits - 1))
            vector = b.insert_element(ir.Constant(ir.VectorType(i32, 1), ir.Undefined), one, i32(0))
            return b.extract_element(value_of(b, vector, code), i32(0))

        return types.float32(types.int64, types.int64), generate

    return read_value


def value_of(b, codes, code):
    """float32 vector of a vector of codes, int32."""
    bits, kind = weights.CODES[code]
    lanes = codes.type.count
    floats = ir.VectorType(f32, lanes)
    if isinstance(kind, tuple):
        return _look_up(b, codes, kind)
    if code in _FLOAT_BITS:
        return _widen(b, codes, *_FLOAT_BITS[code])
    if kind == "signed":
        codes = b.ashr(b.shl(codes, constant(i32, lanes, 32 - bits)), constant(i32, lanes, 32 - bits))
    if kind == "offset":
        codes = b.sub(codes, constant(i32, lanes, 2 ** (bits - 1)))
    return b.sitofp(codes, floats)


def _widen(b, codes, places, bias, nan):
    """A float of 8 bits: its exponent and fraction as float32's, times the power of 2 by which the biases differ."""
    lanes = codes.type.count
    floats = ir.VectorType(f32, lanes)
    sign = b.shl(b.and_(codes, constant(i32, lanes, 0x80)), constant(i32, lanes, 24))
    rest = b.and_(codes, constant(i32, lanes, 0x7F))
    value = b.fmul(b.bitcast(b.shl(rest, constant(i32, lanes, places)), floats), constant(f32, lanes, 2.0**bias))
    if nan is None:  # the highest exponent means infinity or nan, as float32's does
        special = b.bitcast(b.or_(b.shl(rest, constant(i32, lanes, places)), constant(i32, lanes, 0x7F800000)), floats)
        value = b.select(b.icmp_signed(">=", rest, constant(i32, lanes, 0x7C)), special, value)
    else:
        value = b.select(b.icmp_signed("==", rest, constant(i32, lanes, nan)), constant(f32, lanes, float("nan")), value)
    return b.bitcast(b.or_(b.bitcast(value, codes.type), sign), floats)


def _look_up(b, codes, table):
    """table[code] of each lane."""
    lanes = codes.type.count
    floats = ir.VectorType(f32, lanes)
    values = ir.Constant(ir.VectorType(f32, len(table)), list(table))
    if lanes == len(table) == 16 and features.level().startswith("avx512"):
        permute = vectors.declare(b, "llvm.x86.avx512.permvar.sf.512", floats, [floats, codes.type])
        return b.call(permute, [values, codes])
    result = ir.Constant(floats, ir.Undefined)
    for lane in range(lanes):
        one = b.extract_element(values, b.extract_element(codes, i32(lane)))
        result = b.insert_element(result, one, i32(lane))
    return result


@functools.cache
def read_scale(scale):
    """read_scale(address, index) -> float32: number `index` of an array in one of weights.SCALES."""
    size = weights.SCALES[scale].itemsize

    @intrinsic
    def read_one(typing_context, address, index):
        def generate(context, b, s, args):
            place = b.add(args[0], b.mul(args[1], i64(size)))
            if scale in ("float32", "bfloat16"):
                return b.extract_element(vectors.load_value(b, place, scale, 1), i32(0))
            if scale == "float16":
                return half_value(b, place)
            code = b.zext(b.load(at(b, place, i8), align=1), i32)
            if scale == "e8m0":
                bits = b.select(b.icmp_signed("==", code, i32(0)), i32(1 << 22), b.shl(code, i32(23)))
                return b.bitcast(b.select(b.icmp_signed("==", code, i32(255)), i32(0x7FC00000), bits), f32)
            vector = b.insert_element(ir.Constant(ir.VectorType(i32, 1), ir.Undefined), code, i32(0))
            return b.extract_element(value_of(b, vector, scale), i32(0))

        return types.float32(types.int64, types.int64), generate

    return read_one


def half_value(b, address):
    """The float16 at an address as float32, exactly, by integer arithmetic: without it the CPU's own conversion would be a library call."""
    half = b.zext(b.load(at(b, address, i16), align=1), i32)
    sign = b.shl(b.and_(half, i32(0x8000)), i32(16))
    rest = b.shl(b.and_(half, i32(0x7FFF)), i32(13))
    value = b.fmul(b.bitcast(rest, f32), f32(2.0**112))
    special = b.bitcast(b.or_(rest, i32(0x7F800000)), f32)
    value = b.select(b.icmp_signed(">=", rest, i32(0x7C00 << 13)), special, value)
    return b.bitcast(b.or_(b.bitcast(value, i32), sign), f32)


@intrinsic
def read_half(typing_context, address):
    """The float16 at an address."""
    return types.float32(types.int64), lambda context, b, s, args: half_value(b, args[0])


@intrinsic
def read_half_power(typing_context, address):
    """2 ** (byte - 128) of the byte at an address; the two least are not normal numbers."""

    def generate(context, b, s, args):
        code = b.zext(b.load(at(b, args[0], i8), align=1), i32)
        small = b.shl(i32(0x200000), code)
        bits = b.select(b.icmp_signed("<", code, i32(2)), small, b.shl(b.sub(code, i32(1)), i32(23)))
        return b.bitcast(bits, f32)

    return types.float32(types.int64), generate


@intrinsic
def read_byte(typing_context, address):
    """The unsigned byte at an address, int64."""
    return types.int64(types.int64), lambda context, b, s, args: b.zext(b.load(at(b, args[0], i8), align=1), i64)


@intrinsic
def read_signed_byte(typing_context, address):
    """The int8 at an address, as float32."""
    return types.float32(types.int64), lambda context, b, s, args: b.sitofp(b.load(at(b, args[0], i8), align=1), f32)


@intrinsic
def read_word(typing_context, address):
    """The unsigned 32 bit word at an address, int64; it need not be aligned."""
    return types.int64(types.int64), lambda context, b, s, args: b.zext(b.load(at(b, args[0], i32), align=1), i64)
