"""Rows of int8: activations coded row by row, group by group, each with its scale and its sum in front, as the int8 tile reads them."""

import functools

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.ops.cpu import compile, features, vectors
from octavo.ops.cpu.vectors import FloatVector, at, constant, i8, i32

HEAD_BYTES = 8  # of a group: float32 scale, int32 -128 * sum of the codes; then the codes
_NEAREST = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer, ties to even, in the low bits
_UNSIGNED = 128


def group_bytes(group: int) -> int:
    """Of a group of so many columns: head and whole vectors of codes; those beyond the row's end are 0."""
    lanes = features.lanes()
    return HEAD_BYTES + -(-group // lanes) * lanes


def row_bytes(depth: int, group: int) -> int:
    """Of one row."""
    return -(-depth // group) * group_bytes(group)


def build(dtype, is_static):
    """Units are rows. arguments: 0 x, 1 x stride, 2 coded rows, 3 bytes of one, 4 depth, 5 columns of a group, 6 bytes of one, 7 address of
    the scale of all rows.
    """
    code_row = coding(dtype, is_static)

    def rows(begin, end, arguments):
        a = vectors.int64s(arguments)
        for row in range(begin, end):
            code_row(a[0] + row * a[1], a[2] + row * a[3], a[4], a[5], a[6], a[7])

    return rows


@functools.cache
def coding(dtype, is_static):
    """code_row(x, target, depth, group, group_bytes, scale): one row; scale: the address of that of all rows."""
    lanes, size = features.lanes(), vectors.SIZES[dtype]
    load, load_part = vectors.load(dtype, lanes), vectors.load_part(dtype, lanes)
    splat, store_codes = vectors.splat(lanes), _store_codes(lanes)
    maximum, minimum, absolute = vectors.maximum, vectors.minimum, _absolute(lanes)
    read, write = vectors.read("float32"), vectors.write("float32")
    zero, one, steps, nearest = (vectors.single(value) for value in (0.0, 1.0, 127.0, _NEAREST))
    least, unsigned = vectors.single(-128.0), _UNSIGNED

    @compile.inner
    def largest(x, depth):
        found = splat(zero)
        column = 0
        while column + lanes <= depth:
            found = maximum(absolute(load(x + column * size)), found)
            column += lanes
        if column < depth:
            found = maximum(absolute(load_part(x + column * size, depth - column)), found)
        return vectors.reduce_max(found)

    @compile.inner
    def code(x, row, depth, scale):
        """Codes behind the head, then the head. What is not finite leaves nan in `poison`, everything else 0."""
        divisor, shift, low, high = splat(scale), splat(nearest), splat(least), splat(steps)
        nothing = splat(zero)
        total = poison = nothing
        column = 0
        while column < depth:
            if column + lanes <= depth:
                value = load(x + column * size)
            else:
                value = load_part(x + column * size, depth - column)
            poison = vectors.fma(value, nothing, poison)
            shifted = maximum(minimum(value / divisor, high), low) + shift
            total = total + (shifted - shift)  # integers below 2**24: exact in any order
            store_codes(row + HEAD_BYTES + column, shifted)
            column += lanes
        write(row, scale + vectors.reduce_add(poison))
        vectors.int32s(row)[1] = -unsigned * np.int32(vectors.reduce_add(total))

    @compile.inner
    def code_row(x, target, depth, group, group_bytes, common):
        for start in range(0, depth, group):
            source, count = x + start * size, min(group, depth - start)
            if is_static:
                scale = read(common)
            else:
                scale = vectors.single(largest(source, count) / steps)
                if scale == zero:
                    scale = one
            code(source, target, count, scale)
            target += group_bytes

    return code_row


@functools.cache
def _absolute(lanes):
    """absolute(vector)."""

    @intrinsic
    def clear_sign(typing_context, vector):
        def generate(context, b, s, args):
            bits = b.bitcast(args[0], ir.VectorType(i32, lanes))
            return b.bitcast(b.and_(bits, constant(i32, lanes, 0x7FFFFFFF)), args[0].type)

        return FloatVector(lanes)(FloatVector(lanes)), generate

    return clear_sign


@functools.cache
def _store_codes(lanes):
    """store_codes(address, vector): the low byte of each lane's bits."""

    @intrinsic
    def store(typing_context, address, vector):
        def generate(context, b, s, args):
            codes = b.trunc(b.bitcast(args[1], ir.VectorType(i32, lanes)), ir.VectorType(i8, lanes))
            b.store(codes, at(b, args[0], codes.type), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, FloatVector(lanes)), generate

    return store
