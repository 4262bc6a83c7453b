"""The int8 tile: coded rows of x times panels of int8 weights, added up in int32 registers; what a group's columns give is exact.

A panel is `lanes` rows of the weight beside each other, four columns of each together: [columns / 4, lanes, 4]. Where one instruction
multiplies unsigned with signed bytes, weights are kept with 128 added, and the group's head has what that takes from every sum.
"""

import functools

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.device import memory
from octavo.ops.cpu import compile, features, vectors
from octavo.ops.cpu.int8_rows import HEAD_BYTES
from octavo.ops.cpu.vectors import at, constant, f32, i16, i32, i64, load_value, splat_value, store_value

ALONE = 4  # panels beside each other for a single row: their chains hide each other's latency
# (rows, panels) of the largest tile
_LARGEST = {"avx512bf16": (8, 2), "avx512": (8, 2), "avx2": (4, 1), "plain": (2, 1)}


def largest():
    return _LARGEST[features.level()]


def pack(codes: torch.Tensor) -> torch.Tensor:
    """The panels of int8 codes [n, k], given as uint8, in memory of their own on huge pages."""
    n, k = codes.shape
    lanes = features.lanes()
    shape = (-(-n // lanes), -(-k // 4), lanes, 4)
    if codes.is_meta:
        return torch.empty(shape, dtype=torch.uint8, device="meta")
    panels = memory.allocate(shape[0] * shape[1] * lanes * 4).view(shape)
    whole, rest = n // lanes, n % lanes
    quads = k // 4
    even = codes[:, : quads * 4].unflatten(1, (quads, 4))
    panels[:whole, :quads].movedim(2, 1).copy_(even[: whole * lanes].unflatten(0, (whole, lanes)))
    if rest:
        panels[whole, :quads, :rest].movedim(1, 0).copy_(even[whole * lanes :])
    if left := k % 4:
        panels[:whole, quads, :, :left].copy_(codes[: whole * lanes, -left:].unflatten(0, (whole, lanes)))
        if rest:
            panels[whole, quads, :rest, :left].copy_(codes[whole * lanes :, -left:])
    return panels.bitwise_xor_(128) if features.multiplies_bytes() else panels


@functools.cache
def tile(rows, count, dtype, out_dtype, has_bias):
    """tile(x, x_stride, group_bytes, group_steps, panels, panel_bytes, scales, out, out_stride, bias, steps, columns): `rows` coded rows
    times `count` panels.

    Strides in bytes. steps: quads along the depth, of which a group has group_steps. Only the first `columns` of count * lanes columns are
    read of scales (float32) and bias (`dtype`), and written.
    """
    lanes = features.lanes()
    sums_type, floats = ir.VectorType(i32, lanes), ir.VectorType(f32, lanes)

    @intrinsic
    def product_tile(
        typing_context, x, x_stride, group_bytes, group_steps, panels, panel_bytes, scales, out, out_stride, bias, steps, columns
    ):
        def generate(context, b, s, args):
            x, x_stride, group_bytes, group_steps, panels, panel_bytes, scales, out, out_stride, bias, steps, columns = args
            x_rows = [b.add(x, b.mul(x_stride, i64(r))) for r in range(rows)]
            outs = [b.add(out, b.mul(out_stride, i64(r))) for r in range(rows)]
            weights = [b.add(panels, b.mul(panel_bytes, i64(c))) for c in range(count)]
            totals = walk_groups(b, x_rows, group_bytes, group_steps, weights, steps, b.mul(panel_bytes, i64(count)))
            for c in range(count):
                finish(b, c, [row[c] for row in totals], scales, outs, bias, columns)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 12), generate

    def finish(b, c, totals, scales, outs, bias, columns):
        """Scales, bias, rounding and the stores of panel c's columns."""
        first, left = c * lanes, b.sub(columns, i64(c * lanes))
        wide = load_value(b, b.add(scales, i64(first * 4)), "float32", lanes, left)
        shift = load_value(b, b.add(bias, i64(first * vectors.SIZES[dtype])), dtype, lanes, left) if has_bias else None
        for total, out in zip(totals, outs):
            value = b.fmul(total, wide)
            if shift is not None:
                value = b.fadd(value, shift)
            store_value(b, b.add(out, i64(first * vectors.SIZES[out_dtype])), value, out_dtype, left)

    def walk_groups(b, x_rows, group_bytes, group_steps, weights, steps, ahead):
        """The groups' sums, each times its scale: a loop around the one over the columns of a group."""
        before = b.block
        head, body, tail = (b.append_basic_block(f"groups_{name}") for name in ("head", "body", "end"))
        b.branch(head)
        b.position_at_end(head)
        done, offset = b.phi(i64), b.phi(i64)
        done.add_incoming(i64(0), before)
        offset.add_incoming(i64(0), before)
        totals = [[b.phi(floats) for _ in weights] for _ in x_rows]
        for row in totals:
            for value in row:
                value.add_incoming(ir.Constant(floats, None), before)
        b.cbranch(b.icmp_signed("<", done, steps), body, tail)
        b.position_at_end(body)
        left = b.sub(steps, done)
        here = b.select(b.icmp_signed("<", left, group_steps), left, group_steps)
        groups = [b.add(row, offset) for row in x_rows]
        sums = walk(b, groups, [b.add(weight, b.mul(done, i64(4 * lanes))) for weight in weights], here, ahead)
        new = []
        for group, row, row_sums in zip(groups, totals, sums):
            factor = splat_value(b, b.load(at(b, group, f32), align=4), lanes)
            new.append([b.fadd(value, b.fmul(b.sitofp(total, floats), factor)) for value, total in zip(row, row_sums)])
        done.add_incoming(b.add(done, here), b.block)
        offset.add_incoming(b.add(offset, group_bytes), b.block)
        for row, row_new in zip(totals, new):
            for value, value_new in zip(row, row_new):
                value.add_incoming(value_new, b.block)
        b.branch(head)
        b.position_at_end(tail)
        return totals

    def walk(b, groups, weights, steps, ahead):
        """The sums of a group: a loop whose step takes 4 bytes of each row of x and one vector of each panel."""
        starts = [ir.Constant(sums_type, None)] * rows
        if features.multiplies_bytes():
            starts = [splat_value(b, b.load(at(b, b.add(group, i64(4)), i32), align=4), lanes) for group in groups]
        before = b.block
        head, body, tail = (b.append_basic_block(f"int8_{name}") for name in ("head", "body", "end"))
        b.branch(head)
        b.position_at_end(head)
        step = b.phi(i64)
        step.add_incoming(i64(0), before)
        sums = [[b.phi(sums_type) for _ in weights] for _ in groups]
        for row, start in zip(sums, starts):
            for value in row:
                value.add_incoming(start, before)
        b.cbranch(b.icmp_signed("<", step, steps), body, tail)
        b.position_at_end(body)
        x_offset, offset = b.add(b.mul(step, i64(4)), i64(HEAD_BYTES)), b.mul(step, i64(4 * lanes))
        columns = [b.load(at(b, b.add(weight, offset), sums_type), align=4) for weight in weights]
        if rows == 1:  # a panel is too short a run for the CPU to foresee the next ones
            for weight in weights:
                vectors.prefetch_value(b, b.add(b.add(weight, offset), ahead), 2)
        quads = [splat_value(b, b.load(at(b, b.add(group, x_offset), i32), align=4), lanes) for group in groups]
        new = add_products(b, sums, quads, columns)
        step.add_incoming(b.add(step, i64(1)), b.block)
        for row, row_new in zip(sums, new):
            for value, value_new in zip(row, row_new):
                value.add_incoming(value_new, b.block)
        b.branch(head)
        b.position_at_end(tail)
        return sums

    return product_tile


def add_products(b, sums, rows, columns):
    """sums[r][c] + the four products of rows[r] and columns[c] in each lane; codes as int32 vectors of four bytes."""
    kind = columns[0].type
    if features.multiplies_bytes():
        multiply = vectors.declare(b, "llvm.x86.avx512.vpdpbusd.512", kind, [kind] * 3)
        return [[b.call(multiply, [total, w, x]) for total, w in zip(row, columns)] for row, x in zip(sums, rows)]
    split_columns, new = [_parts(b, w) for w in columns], []
    for row, x in zip(sums, rows):
        parts = _parts(b, x)
        row = list(row)
        for c, split in enumerate(split_columns):
            for one, other in zip(parts, split):
                row[c] = b.add(row[c], _multiply_parts(b, one, other, kind))
        new.append(row)
    return new


# what _multiply_parts takes: vectors of pairs of int16, whose products an instruction adds up, or of single int32
_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd"}


def _parts(b, quads):
    """Four bytes a lane as vectors that `_multiply_parts` takes: even and odd bytes in pairs, or each byte alone."""
    lanes = quads.type.count
    if lanes in _PAIRS:
        pairs = b.bitcast(quads, ir.VectorType(i16, 2 * lanes))
        eight = constant(i16, 2 * lanes, 8)
        return [b.ashr(b.shl(pairs, eight), eight), b.ashr(pairs, eight)]
    top = constant(i32, lanes, 24)
    return [b.ashr(b.shl(quads, constant(i32, lanes, 24 - 8 * byte)), top) for byte in range(4)]


def _multiply_parts(b, one, other, kind):
    if kind.count not in _PAIRS:
        return b.mul(one, other)
    return b.call(vectors.declare(b, _PAIRS[kind.count], kind, [one.type] * 2), [one, other])


@functools.cache
def product(dtype, out_dtype, has_bias):
    """product(x, x_stride, group_bytes, group_steps, panels, scales, out, out_stride, bias, rows, n, steps, first, end): coded rows times
    panels first..end.
    """
    most_rows, most_panels = largest()
    lanes, size, bias_size = features.lanes(), vectors.SIZES[out_dtype], vectors.SIZES[dtype]
    of = {rows: tile(rows, most_panels, dtype, out_dtype, has_bias) for rows in {most_rows, min(4, most_rows), 2, 1}}
    wide = _column(most_rows, of[most_rows], of[min(4, most_rows)], of[2], of[1])
    slim = _slim_column(most_rows, *(tile(rows, 1, dtype, out_dtype, has_bias) for rows in (most_rows, 1)))

    @compile.inner
    def whole_product(x, x_stride, group_bytes, group_steps, panels, scales, out, out_stride, bias, rows, n, steps, first, end):
        panel_bytes = steps * lanes * 4
        source = (x, x_stride, group_bytes, group_steps)
        panel = first
        while panel < end:
            column = panel * lanes
            weight, factor, target = panels + panel * panel_bytes, scales + column * 4, out + column * size
            shift = bias + column * bias_size
            if panel + most_panels <= end:
                wide(*source, weight, panel_bytes, factor, target, out_stride, shift, rows, steps, n - column)
                panel += most_panels
            else:
                slim(*source, weight, panel_bytes, factor, target, out_stride, shift, rows, steps, n - column)
                panel += 1

    return whole_product


def _column(most_rows, of_most, of_4, of_2, of_1):
    """All rows times the panels of one tile's width: the tallest tiles first, then what is left by halves."""

    @compile.inner
    def column(x, x_stride, group_bytes, group_steps, weight, panel_bytes, scales, out, out_stride, bias, rows, steps, columns):
        row = 0
        while row < rows:
            source, target = x + row * x_stride, out + row * out_stride
            if row + most_rows <= rows:
                of_most(source, x_stride, group_bytes, group_steps, weight, panel_bytes, scales, target, out_stride, bias, steps, columns)
                row += most_rows
            elif row + 4 <= rows:
                of_4(source, x_stride, group_bytes, group_steps, weight, panel_bytes, scales, target, out_stride, bias, steps, columns)
                row += 4
            elif row + 2 <= rows:
                of_2(source, x_stride, group_bytes, group_steps, weight, panel_bytes, scales, target, out_stride, bias, steps, columns)
                row += 2
            else:
                of_1(source, x_stride, group_bytes, group_steps, weight, panel_bytes, scales, target, out_stride, bias, steps, columns)
                row += 1

    return column


def _slim_column(most_rows, of_most, of_1):
    """All rows times the panels of one tile's width."""

    @compile.inner
    def column(x, x_stride, group_bytes, group_steps, weight, panel_bytes, scales, out, out_stride, bias, rows, steps, columns):
        row = 0
        while row < rows:
            source, target = x + row * x_stride, out + row * out_stride
            if row + most_rows <= rows:
                of_most(source, x_stride, group_bytes, group_steps, weight, panel_bytes, scales, target, out_stride, bias, steps, columns)
                row += most_rows
            else:
                of_1(source, x_stride, group_bytes, group_steps, weight, panel_bytes, scales, target, out_stride, bias, steps, columns)
                row += 1

    return column
