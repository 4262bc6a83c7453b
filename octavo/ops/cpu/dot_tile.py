"""The dot tile: rows of x times rows of a weight that lie along the depth, as decoded weights do; sums stay in registers.

Each element of the result is `lanes` chains along k, added up in one fixed order, whatever the tile: a row's bits depend on that row and
the weight alone. The last, incomplete vector of x is read under a mask; the weight's rows are padded with zeros to whole vectors.
"""

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.ops.cpu import features, vectors
from octavo.ops.cpu.vectors import at, f32, fma_value, i16, i32, i64, load_value, store_value

# (rows of x, rows of the weight) of the largest tile: sums and operands must fit in 32 or 16 registers
LARGEST = {"avx512bf16": (4, 4), "avx512": (4, 4), "avx2": (2, 4), "plain": (2, 2)}


def takes_pairs(dtype):
    """Whether two numbers of `dtype` are multiplied in one lane, by one instruction."""
    return dtype == "bfloat16" and features.level() == "avx512bf16"


def step(dtype):
    """Numbers along the depth that one vector takes; weights are padded to a multiple of it."""
    return features.lanes() * (2 if takes_pairs(dtype) else 1)


@functools.cache
def tile(rows, count, dtype, out_dtype, has_bias):
    """tile(x, x_stride, weight, weight_stride, out, out_stride, bias, k): `rows` rows of x times `count` rows of the weight.

    Strides in bytes, x and weight of `dtype`. bias: the address of the first of `count` numbers of `dtype`.
    """
    lanes, size, out_size = features.lanes(), vectors.SIZES[dtype], vectors.SIZES[out_dtype]
    vector, pairs = ir.VectorType(f32, lanes), takes_pairs(dtype)

    def whole(b, address):
        return b.load(at(b, address, vector), align=2) if pairs else load_value(b, address, dtype, lanes)

    def part(b, address, left):
        if not pairs:
            return load_value(b, address, dtype, lanes, left)
        return b.bitcast(_masked_halves(b, address, 2 * lanes, left), vector)

    def add(b, sums, x, w):
        if pairs:
            return [[vectors.dot_pairs_value(b, s, a, c) for s, c in zip(row, w)] for row, a in zip(sums, x)]
        return [[fma_value(b, a, c, s) for s, c in zip(row, w)] for row, a in zip(sums, x)]

    def walk(b, x_rows, w_rows, k):
        """The sums of all whole vectors, then of the incomplete one."""
        width = step(dtype)
        steps, left = b.sdiv(k, i64(width)), b.srem(k, i64(width))
        before = b.block
        head, body, tail, last, end = (b.append_basic_block(f"dot_{name}") for name in ("head", "body", "tail", "last", "end"))
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(i64)
        index.add_incoming(i64(0), before)
        sums = [[b.phi(vector) for _ in w_rows] for _ in x_rows]
        for row in sums:
            for value in row:
                value.add_incoming(ir.Constant(vector, None), before)
        b.cbranch(b.icmp_signed("<", index, steps), body, tail)
        b.position_at_end(body)
        offset = b.mul(index, i64(width * size))
        new = add(b, sums, [whole(b, b.add(x, offset)) for x in x_rows], [whole(b, b.add(w, offset)) for w in w_rows])
        index.add_incoming(b.add(index, i64(1)), b.block)
        for row, row_new in zip(sums, new):
            for value, value_new in zip(row, row_new):
                value.add_incoming(value_new, b.block)
        b.branch(head)
        b.position_at_end(tail)
        b.cbranch(b.icmp_signed(">", left, i64(0)), last, end)
        b.position_at_end(last)
        offset = b.mul(steps, i64(width * size))
        new = add(b, sums, [part(b, b.add(x, offset), left) for x in x_rows], [whole(b, b.add(w, offset)) for w in w_rows])
        after = b.block
        b.branch(end)
        b.position_at_end(end)
        merged = [[b.phi(vector) for _ in w_rows] for _ in x_rows]
        for row, row_old, row_new in zip(merged, sums, new):
            for value, old, value_new in zip(row, row_old, row_new):
                value.add_incoming(old, tail)
                value.add_incoming(value_new, after)
        return merged

    @intrinsic
    def dot(typing_context, x, x_stride, weight, weight_stride, out, out_stride, bias, k):
        def generate(context, b, s, args):
            x, x_stride, weight, weight_stride, out, out_stride, bias, k = args
            x_rows = [b.add(x, b.mul(x_stride, i64(r))) for r in range(rows)]
            w_rows = [b.add(weight, b.mul(weight_stride, i64(c))) for c in range(count)]
            sums = walk(b, x_rows, w_rows, k)
            for r in range(rows):
                for c in range(count):
                    value = vectors.fold_value(b, sums[r][c])
                    if has_bias:
                        shift = load_value(b, b.add(bias, i64(c * size)), dtype, 1)
                        value = b.fadd(value, b.extract_element(shift, i32(0)))
                    address = b.add(b.add(out, b.mul(out_stride, i64(r))), i64(c * out_size))
                    one = b.insert_element(ir.Constant(ir.VectorType(f32, 1), ir.Undefined), value, i32(0))
                    store_value(b, address, one, out_dtype)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), generate

    return dot


def _masked_halves(b, address, lanes, count):
    """The first `count` 16 bit numbers at an address, the rest 0 and not read."""
    kind = ir.VectorType(i16, lanes)
    pointer = at(b, address, kind)
    mask = vectors.mask_value(b, count, lanes)
    load = vectors.declare(b, f"llvm.masked.load.v{lanes}i16.p0", kind, [pointer.type, i32, mask.type, kind])
    return b.call(load, [pointer, i32(2), mask, ir.Constant(kind, None)])
