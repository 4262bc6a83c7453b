"""The register tile: rows x vectors of accumulators that stay in registers while the depth is walked once, and what is built of tiles.

Each element of the result is one chain of multiply-adds along k, from 0 upwards, whatever the tile: a row's bits depend on that row and the
weight alone, not on how many rows there are, where a tile begins or which thread has it.
"""

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.ops.cpu import compile, features, vectors
from octavo.ops.cpu.vectors import at, f32, fma_value, i16, i32, i64, load_value, splat_value, store_value

# (rows, vectors) of the largest tile: accumulators, weights and broadcasts must fit in 32 (avx512) or 16 registers. LLVM loads the
# broadcasts of all rows before the bfloat16 products, so 8 x 3 spills there, and spills that cross a cache line, as the stack happens to
# lie, cost 30 %
_LARGEST = {
    ("avx512bf16", "bfloat16"): (8, 2),
    ("avx512bf16", "float32"): (8, 3),
    ("avx512", "bfloat16"): (8, 2),
    ("avx512", "float32"): (8, 3),
    ("avx2", "bfloat16"): (4, 2),
    ("avx2", "float32"): (4, 3),
    ("plain", "bfloat16"): (4, 2),
    ("plain", "float32"): (4, 3),
}
_ROLLED_FROM = 6  # accumulators
LINE = 64  # bytes that memory gives at once


def largest(dtype):
    """(rows, vectors) of the largest tile for weights of `dtype` at this CPU's level."""
    return _LARGEST[features.level(), dtype]


class _Rolled(ir.values.MDValue):
    """Loop metadata: do not unroll. Unrolled, a tile that fills the registers spills them, at half the speed."""

    def __init__(self, module):
        self._disable = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
        super().__init__(module, [], name=str(len(module.metadata)))

    def descr(self, buf):
        buf += (f"distinct !{{ {self.get_reference()}, {self._disable.get_reference()} }}", "\n")


@functools.cache
def tile(rows, count, dtype, out_dtype, has_bias):
    """tile(x, x_stride, panels, panel_bytes, out, out_stride, bias, k, columns, ahead, ahead_bytes): `rows` rows times `count` panels.

    Strides in bytes. Only the first `columns` of count * lanes columns are written. bias: the address of the first column's, of `dtype`.
    ahead: what is read next; each step of the depth fetches ahead_bytes of it, so that memory is read while products are made.
    """
    lanes = features.lanes()
    vector = ir.VectorType(f32, lanes)

    @intrinsic
    def product_tile(typing_context, x, x_stride, panels, panel_bytes, out, out_stride, bias, k, columns, ahead, ahead_bytes):
        def generate(context, b, s, args):
            x, x_stride, panels, panel_bytes, out, out_stride, bias, k, columns, ahead, ahead_bytes = args
            x_rows = [b.add(x, b.mul(x_stride, i64(r))) for r in range(rows)]
            weights = [b.add(panels, b.mul(panel_bytes, i64(c))) for c in range(count)]
            steps = b.ashr(k, i64(1)) if dtype == "bfloat16" else k
            sums = _walk(b, x_rows, weights, steps, dtype, vector, (ahead, ahead_bytes))
            if dtype == "bfloat16":
                sums = _odd_step(b, x_rows, weights, k, steps, sums)
            _finish(b, sums, out, out_stride, bias, columns)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), generate

    def _finish(b, sums, out, out_stride, bias, columns):
        """Bias, rounding and the stores: whole vectors, or masked ones at the right edge."""
        size, bias_size = vectors.SIZES[out_dtype], vectors.SIZES[dtype]
        whole = b.icmp_signed(">=", columns, i64(count * lanes))
        with b.if_else(whole) as branches:
            for is_whole, branch in zip((True, False), branches):
                with branch:
                    for c in range(count):
                        left = None if is_whole else b.sub(columns, i64(c * lanes))
                        shift = load_value(b, b.add(bias, i64(c * lanes * bias_size)), dtype, lanes, left) if has_bias else None
                        for r in range(rows):
                            value = sums[r][c] if shift is None else b.fadd(sums[r][c], shift)
                            address = b.add(b.add(out, b.mul(out_stride, i64(r))), i64(c * lanes * size))
                            store_value(b, address, value, out_dtype, left)

    return product_tile


def _walk(b, x_rows, weights, steps, dtype, vector, ahead):
    """The sums over k: a loop whose step takes 4 bytes of each row of x and one vector of each panel."""
    lanes = vector.count
    before = b.block
    head, body, tail = (b.append_basic_block(name) for name in ("depth_head", "depth_body", "depth_end"))
    b.branch(head)
    b.position_at_end(head)
    step = b.phi(i64)
    step.add_incoming(i64(0), before)
    sums = [[b.phi(vector) for _ in weights] for _ in x_rows]
    for row in sums:
        for value in row:
            value.add_incoming(ir.Constant(vector, None), before)
    b.cbranch(b.icmp_signed("<", step, steps), body, tail)
    b.position_at_end(body)
    x_offset, offset = b.mul(step, i64(4)), b.mul(step, i64(4 * lanes))
    fetched = b.add(ahead[0], b.mul(step, ahead[1]))
    for index in range(len(weights) * 4 * lanes // LINE or 1):
        vectors.prefetch_value(b, b.add(fetched, i64(index * LINE)), 2)
    columns = [b.load(at(b, b.add(weight, offset), vector), align=4) for weight in weights]
    broadcast = [splat_value(b, b.load(at(b, b.add(row, x_offset), f32), align=2), lanes) for row in x_rows]
    new = multiply(b, sums, broadcast, columns, dtype)
    step.add_incoming(b.add(step, i64(1)), b.block)
    for row, row_new in zip(sums, new):
        for value, value_new in zip(row, row_new):
            value.add_incoming(value_new, b.block)
    back = b.branch(head)
    if len(x_rows) * len(weights) >= _ROLLED_FROM:
        back.set_metadata("llvm.loop", _Rolled(b.module))
    b.position_at_end(tail)
    return sums


def multiply(b, sums, rows, columns, dtype):
    """sums[r][c] + rows[r] * columns[c]; for bfloat16 each lane holds a pair and both products are added, the even number's first."""
    if dtype == "float32":
        return [[fma_value(b, x, w, total) for w, total in zip(columns, row)] for x, row in zip(rows, sums)]
    if features.level() == "avx512bf16":
        return [[vectors.dot_pairs_value(b, total, x, w) for w, total in zip(columns, row)] for x, row in zip(rows, sums)]
    split_columns = [vectors.split_pairs_value(b, w) for w in columns]
    new = []
    for x, row in zip(rows, sums):
        x_even, x_odd = vectors.split_pairs_value(b, x)
        row = [fma_value(b, x_even, even, total) for (even, _), total in zip(split_columns, row)]
        new.append([fma_value(b, x_odd, odd, total) for (_, odd), total in zip(split_columns, row)])
    return new


def _odd_step(b, x_rows, weights, k, steps, sums):
    """The last number of an odd depth, without reading its missing partner in x."""
    vector = sums[0][0].type
    lanes = vector.count
    before = b.block
    odd, end = (b.append_basic_block(name) for name in ("odd_step", "odd_end"))
    b.cbranch(b.icmp_signed("!=", b.and_(k, i64(1)), i64(0)), odd, end)
    b.position_at_end(odd)
    x_offset, offset = b.mul(steps, i64(4)), b.mul(steps, i64(4 * lanes))
    columns = [b.load(at(b, b.add(weight, offset), vector), align=4) for weight in weights]
    halves = [b.zext(b.load(at(b, b.add(row, x_offset), i16), align=2), i32) for row in x_rows]
    broadcast = [b.bitcast(splat_value(b, half, lanes), vector) for half in halves]
    new = multiply(b, sums, broadcast, columns, "bfloat16")
    after = b.block
    b.branch(end)
    b.position_at_end(end)
    merged = []
    for row, row_new in zip(sums, new):
        merged.append([])
        for value, value_new in zip(row, row_new):
            phi = b.phi(vector)
            phi.add_incoming(value, before)
            phi.add_incoming(value_new, after)
            merged[-1].append(phi)
    return merged


def _column(most_rows, of_most, of_4, of_2, of_1):
    """All rows times the panels of one tile's width: the tallest tiles first, then what is left by halves. The panels behind them, as many,
    are fetched meanwhile, an equal part by each of the tiles."""

    @compile.inner
    def column(x, x_stride, weight, panel_bytes, out, out_stride, bias, rows, k, columns, bytes_ahead, steps):
        tiles = max(1, (rows + most_rows - 1) // most_rows)
        each = bytes_ahead // tiles
        ahead, step = weight + bytes_ahead, each // max(1, steps)
        row = 0
        while row + most_rows <= rows:
            of_most(x + row * x_stride, x_stride, weight, panel_bytes, out + row * out_stride, out_stride, bias, k, columns, ahead, step)
            row += most_rows
            ahead += each
        if row + 4 <= rows:
            of_4(x + row * x_stride, x_stride, weight, panel_bytes, out + row * out_stride, out_stride, bias, k, columns, ahead, step)
            row += 4
        if row + 2 <= rows:
            of_2(x + row * x_stride, x_stride, weight, panel_bytes, out + row * out_stride, out_stride, bias, k, columns, ahead, step)
            row += 2
        if row < rows:
            of_1(x + row * x_stride, x_stride, weight, panel_bytes, out + row * out_stride, out_stride, bias, k, columns, ahead, step)

    return column


@functools.cache
def product(dtype, out_dtype, has_bias):
    """product(x, x_stride, panels, out, out_stride, bias, rows, n, k, first, end): all rows times panels first..end of a weight [n, k].

    For kernels. Strides in bytes; `panels`, `out` and `bias` are the addresses of panel 0 and column 0.
    """
    most_rows, most_panels = largest(dtype)
    lanes, size, bias_size = features.lanes(), vectors.SIZES[out_dtype], vectors.SIZES[dtype]
    packs_pairs = dtype == "bfloat16"
    wide, slim = (
        _column(most_rows, *(tile(rows, count, dtype, out_dtype, has_bias) for rows in (most_rows, 4, 2, 1))) for count in (most_panels, 1)
    )

    @compile.inner
    def whole_product(x, x_stride, panels, out, out_stride, bias, rows, n, k, first, end):
        steps = k >> 1 if packs_pairs else k
        panel_bytes = (((k + 1) >> 1) if packs_pairs else k) * lanes * 4
        panel = first
        while panel < end:
            column = panel * lanes
            weight, target, shift = panels + panel * panel_bytes, out + column * size, bias + column * bias_size
            if panel + most_panels <= end:
                wide(x, x_stride, weight, panel_bytes, target, out_stride, shift, rows, k, n - column, most_panels * panel_bytes, steps)
                panel += most_panels
            else:
                slim(x, x_stride, weight, panel_bytes, target, out_stride, shift, rows, k, n - column, panel_bytes, steps)
                panel += 1

    return whole_product
