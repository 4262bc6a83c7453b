"""The coded tile: rows of bf16 times panels of coded weights; the products with a group's codes are added up, then scaled as one.

A code's value is looked up as a bf16 number, exactly for all that are whole numbers or small floats, so that nothing of the weight is
rounded. Each element of the result is one chain along k, from 0:
    sum[group]   over the group's columns, in pairs: + x[k] value[k] + x[k + 1] value[k + 1]
    total        over the groups: + sum[group] * scale[group], then + (sum of x over the group) * minimum[group]
whatever the tile.
"""

import functools

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.ops.cpu import codes, compile, features, vectors
from octavo.ops.cpu.coded_panels import LANES, PLANES, SCALE_BYTES
from octavo.ops.cpu.tile import _Rolled
from octavo.ops.cpu.vectors import at, f32, fma_value, i8, i16, i32, i64, load_value, splat_value, store_value

FLOATS, INTS, WORDS = ir.VectorType(f32, LANES), ir.VectorType(i32, LANES), ir.VectorType(i16, 2 * LANES)
BYTES = ir.VectorType(i8, 4 * LANES)
VECTOR_BYTES = 4 * LANES
NUM_ADDRESSES = 2 * len(PLANES)  # of each plane: its address and the bytes of a panel
RUN = 8  # columns whose codes are taken up at once
ROWS, PANELS = 8, 2  # of the largest tile
DECODED_FROM = 24  # rows for which codes are looked up first
MOST_ALONE = 4  # panels beside each other for a single row: their chains hide each other's latency


constant = functools.cache(vectors.constant)


class Panel:
    """A panel in its planes, whose addresses stand in a kernel's arguments. ahead: with each read memory is asked for the like of the panel
    so many on, as a panel is too short a run for the CPU to foresee the next; 0: it is not.
    """

    def __init__(self, b, recipe, arguments, first, panel, ahead=0):
        self._b, self._recipe, self._ahead = b, recipe, ahead
        self._at, self._strides = {}, {}
        for index, name in enumerate(PLANES):
            place = b.add(arguments, b.shl(b.add(first, i64(2 * index)), i64(3)))
            address, stride = (b.load(at(b, b.add(place, i64(8 * n)), i64)) for n in range(2))
            self._at[name] = b.add(address, b.mul(panel, stride))
            self._strides[name] = b.mul(stride, i64(ahead))

    def place(self, name, index, size_bytes):
        """The address of entry `index` of its run in a plane."""
        address = self._b.add(self._at[name], self._b.mul(index, i64(size_bytes)))
        if self._ahead:
            later = self._b.add(address, self._strides[name])
            for offset in range(0, size_bytes, 64):
                vectors.prefetch_value(self._b, self._b.add(later, i64(offset)), 2)
        return address

    def run(self, index):
        """value(step) -> the bf16 pairs, as float32 lanes, of columns 2 step and 2 step + 1 of a run of RUN columns."""
        return run_values(self._b, self._recipe, self, index)

    def scales(self, group):
        """(scale, minimum or None) of a group, float32 in each lane."""
        return group_scales(self._b, self._recipe, self, group)

    def factors(self):
        """What the rows' sums are multiplied with, or None."""
        return _numbers(self._b, self._at["rows"], "float32") if self._recipe.has_row_factors else None


class DecodedPanel(Panel):
    """Panel `index` of those that were decoded into a scratch: PANELS of values, then of scales, then of minimums."""

    def __init__(self, b, recipe, arguments, first, panel, scratch, index, depth):
        super().__init__(b, recipe, arguments, first, panel)
        values, scales = b.mul(depth, i64(2 * LANES)), b.mul(groups_of(b, recipe, depth), i64(VECTOR_BYTES))
        after = b.add(scratch, b.mul(values, i64(PANELS)))
        self._values = b.add(scratch, b.mul(values, i64(index)))
        self._scales = b.add(after, b.mul(scales, i64(index)))
        self._minimums = b.add(after, b.mul(scales, i64(PANELS + index)))

    def run(self, index):
        return lambda step: self._vector(self._values, self._b.add(self._b.mul(index, i64(RUN // 2)), i64(step)))

    def scales(self, group):
        return self._vector(self._scales, group), self._vector(self._minimums, group) if self._recipe.minimum else None

    def _vector(self, start, index):
        return self._b.load(at(self._b, self.vector_place(start, index), FLOATS), align=64)

    def vector_place(self, start, index):
        return self._b.add(start, self._b.mul(index, i64(VECTOR_BYTES)))

    def store(self, depth, panel):
        """Decode `panel` into this one."""
        b = self._b

        def run(index, nothing):
            value = panel.run(index)
            for step in range(RUN // 2):
                place = self.vector_place(self._values, b.add(b.mul(index, i64(RUN // 2)), i64(step)))
                b.store(value(step), at(b, place, FLOATS), align=64)
            return nothing

        def group(index, nothing):
            for number, start in zip(panel.scales(index), (self._scales, self._minimums)):
                if number is not None:
                    b.store(number, at(b, self.vector_place(start, index), FLOATS), align=64)
            return nothing

        loop(b, "runs", b.udiv(depth, i64(RUN)), [], run)
        loop(b, "groups", groups_of(b, self._recipe, depth), [], group)


def groups_of(b, recipe, depth):
    return b.udiv(depth, i64(recipe.group)) if recipe.group else i64(1)


def loop(b, name, count, carried, body, is_rolled=False):
    """body(index, values) -> values, `count` times; what it came to. is_rolled: not to be unrolled."""
    before = b.block
    head, inside, end = (b.append_basic_block(f"{name}_{part}") for part in ("head", "body", "end"))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(i64)
    index.add_incoming(i64(0), before)
    values = [b.phi(value.type) for value in carried]
    for phi, value in zip(values, carried):
        phi.add_incoming(value, before)
    b.cbranch(b.icmp_signed("<", index, count), inside, end)
    b.position_at_end(inside)
    new = body(index, values)
    index.add_incoming(b.add(index, i64(1)), b.block)
    for phi, value in zip(values, new):
        phi.add_incoming(value, b.block)
    back = b.branch(head)
    if is_rolled:
        back.set_metadata("llvm.loop", _Rolled(b.module))
    b.position_at_end(end)
    return values


# -- codes and scales


@functools.cache
def _table(values):
    """One or two vectors of the values as bf16."""
    table = list(values)
    if len(table) == 16:
        table *= 2  # by five bits, of which the highest belongs to the next code
    return [ir.Constant(WORDS, [_bfloat_bits(value) for value in table[start : start + 32]]) for start in range(0, len(table), 32)]


def _bfloat_bits(value):
    """The nearest bf16 number's bits, ties to even."""
    bits = int(np.float32(value).view(np.uint32))
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


def run_values(b, recipe, planes, run):
    """See Panel.run."""
    if recipe.low == 8:
        start = planes.place("low", run, RUN * LANES)
        if not features.looks_up_bytes():
            return lambda step: _byte_pair(b, b.add(start, i64(step * 2 * LANES)))
        pairs = [pair for n in range(2) for pair in _byte_pairs(b, b.add(start, i64(n * VECTOR_BYTES)))]
        return lambda step: pairs[step]
    halves = _table(recipe.values)
    low = b.load(at(b, planes.place("low", run, VECTOR_BYTES), WORDS), align=1)
    if recipe.high:
        each = i64(recipe.block // RUN)
        high = b.load(at(b, planes.place("high", b.udiv(run, each), VECTOR_BYTES), WORDS), align=1)
        begin = b.mul(b.urem(run, each), i64(RUN // 2 * recipe.high))
        high = b.lshr(high, splat_value(b, b.trunc(begin, i16), 2 * LANES))

    def value(step):
        index = low if step == 0 else b.lshr(low, constant(i16, 2 * LANES, 4 * step))
        if recipe.high:
            places = step * recipe.high - 4
            shift = b.lshr if places > 0 else b.shl
            above = high if places == 0 else shift(high, constant(i16, 2 * LANES, abs(places)))
            index = b.or_(b.and_(index, constant(i16, 2 * LANES, 15)), b.and_(above, constant(i16, 2 * LANES, -16)))
        if len(halves) == 1:
            name, operands = "llvm.x86.avx512.permvar.hi.512", [halves[0], index]
        else:
            name, operands = "llvm.x86.avx512.vpermi2var.hi.512", [halves[0], index, halves[1]]
        return b.bitcast(b.call(vectors.declare(b, name, WORDS, [WORDS] * len(operands)), operands), FLOATS)

    return value


@functools.cache
def _byte_tables():
    """Of the magnitudes 1 .. 127, and 128 in the place of 0: the high and the low bytes of the bf16 numbers, in two vectors each."""
    bits = [_bfloat_bits(float(value or 128)) for value in range(128)]
    return [[ir.Constant(BYTES, [one >> place & 255 for one in bits[start : start + 64]]) for start in (0, 64)] for place in (8, 0)]


def _byte_pairs(b, address):
    """The int8 of four columns, in the order of coded_panels: the pairs of the first two and of the last two, in bf16, by look-up.

    The magnitude of -128 ends in the seven bits of 0: those look up 128, and what is 0 itself is masked.
    """
    code = b.load(at(b, address, BYTES), align=1)
    magnitude = b.call(vectors.declare(b, "llvm.abs.v64i8", BYTES, [BYTES, ir.IntType(1)]), [code, ir.IntType(1)(0)])
    look_up = vectors.declare(b, "llvm.x86.avx512.vpermi2var.qi.512", BYTES, [BYTES] * 3)
    high, low = (b.call(look_up, [first, magnitude, second]) for first, second in _byte_tables())
    zero = constant(i8, 64, 0)
    high = b.select(b.icmp_signed("!=", code, zero), high, zero)
    high = b.or_(high, b.and_(code, constant(i8, 64, -128)))
    for half in range(2):
        order = [start + 16 * lane + 8 * half + n for lane in range(4) for n in range(8) for start in (0, 64)]
        yield b.bitcast(b.shuffle_vector(low, high, ir.Constant(ir.VectorType(i32, 64), order)), FLOATS)


def _byte_pair(b, address):
    """The int8 of two columns, each in all lanes, as pairs of bf16: float32 of such numbers is 0 in its low half."""
    even, odd = (
        b.bitcast(b.sitofp(b.sext(b.load(at(b, b.add(address, i64(n * LANES)), ir.VectorType(i8, LANES)), align=1), INTS), FLOATS), INTS)
        for n in range(2)
    )
    return b.bitcast(b.or_(b.lshr(even, constant(i32, LANES, 16)), odd), FLOATS)


def _numbers(b, address, number_format):
    """float32 of 16 numbers at an address in a format of SCALE_BYTES."""
    if number_format in ("float32", "bfloat16"):
        return load_value(b, address, number_format, LANES)
    if number_format == "float16":
        return b.fpext(b.load(at(b, address, ir.VectorType(ir.HalfType(), LANES)), align=2), FLOATS)
    raw = b.load(at(b, address, ir.VectorType(i8, LANES)), align=1)
    if number_format == "int8":
        return b.sitofp(b.sext(raw, INTS), FLOATS)
    code = b.zext(raw, INTS)
    if number_format == "uint8":
        return b.sitofp(code, FLOATS)
    if number_format == "float8_e4m3":
        return codes.value_of(b, code, number_format)
    bits = b.shl(code, constant(i32, LANES, 23))
    if number_format == "e8m0":
        bits = b.select(b.icmp_signed("==", code, constant(i32, LANES, 0)), constant(i32, LANES, 1 << 22), bits)
        return b.bitcast(b.select(b.icmp_signed("==", code, constant(i32, LANES, 255)), constant(i32, LANES, 0x7FC00000), bits), FLOATS)
    # "half_power": 2 ** (code - 128), of which the two least are not normal numbers
    small = b.shl(constant(i32, LANES, 0x200000), code)
    bits = b.sub(bits, constant(i32, LANES, 1 << 23))
    return b.bitcast(b.select(b.icmp_signed("<", code, constant(i32, LANES, 2)), small, bits), FLOATS)


def group_scales(b, recipe, planes, group):
    """See Panel.scales."""
    if recipe.scale == "six":
        low = b.zext(b.load(at(b, planes.place("scales", group, LANES), ir.VectorType(i8, LANES)), align=1), INTS)
        rest = planes.place("minimums", b.lshr(group, i64(1)), LANES)
        rest = b.zext(b.load(at(b, rest, ir.VectorType(i8, LANES)), align=1), INTS)
        odd = splat_value(b, b.trunc(b.shl(b.and_(group, i64(1)), i64(2)), i32), LANES)
        rest = b.and_(b.lshr(rest, odd), constant(i32, LANES, 15))
        minimum = b.or_(b.shl(rest, constant(i32, LANES, 2)), b.lshr(low, constant(i32, LANES, 6)))
        scale = b.and_(low, constant(i32, LANES, 63))
        above = planes.place("supers", b.udiv(group, i64(recipe.per_super)), 4 * LANES)
        d, least = (_numbers(b, b.add(above, i64(n * 2 * LANES)), "float16") for n in range(2))
        return b.fmul(b.sitofp(scale, FLOATS), d), b.fneg(b.fmul(b.sitofp(minimum, FLOATS), least))
    scale = _numbers(b, planes.place("scales", group, LANES * SCALE_BYTES[recipe.scale]), recipe.scale)
    if recipe.per_super:
        above = planes.place("supers", b.udiv(group, i64(recipe.per_super)), 2 * LANES)
        scale = b.fmul(scale, _numbers(b, above, "float16"))
    if not recipe.minimum:
        return scale, None
    minimum = _numbers(b, planes.place("minimums", group, LANES * SCALE_BYTES[recipe.minimum]), recipe.minimum)
    if recipe.minimum == "uint8":
        minimum = b.fmul(b.fsub(constant(f32, LANES, recipe.shift), minimum), scale)
    return scale, minimum


# -- the tile


_ZERO = ir.Constant(FLOATS, None)


def _zeros(count):
    return [_ZERO] * count


def _broadcast(b, row, pair):
    """The pair of x's numbers at 4 bytes times `pair`, in each lane."""
    return splat_value(b, b.load(at(b, b.add(row, b.mul(pair, i64(4))), f32), align=2), LANES)


def _add_group(b, totals, sums, scales, minimums, x_sums):
    """totals[r][c] + sums[r][c] * scales[c] + x_sums[r] * minimums[c]."""
    new = []
    for row, row_sums, x_sum in zip(totals, sums, x_sums):
        row = [fma_value(b, value, scale, total) for value, scale, total in zip(row_sums, scales, row)]
        if minimums[0] is not None:
            row = [fma_value(b, x_sum, minimum, total) for minimum, total in zip(minimums, row)]
        new.append(row)
    return new


def _finish(b, totals, factors, outs, bias, columns, out_dtype):
    """Row factors, bias, rounding and the stores of totals[r][c]; only the first `columns` are there. bias: 0 for none."""
    size = vectors.SIZES[out_dtype]
    has_bias = b.icmp_signed("!=", bias, i64(0))
    for c in range(len(totals[0])):
        left = b.sub(columns, i64(c * LANES))
        shift = load_value(b, b.add(bias, i64(c * LANES * 2)), "bfloat16", LANES, b.select(has_bias, left, i64(0)))
        for total, out in zip(totals, outs):
            value = total[c] if factors[c] is None else b.fmul(total[c], factors[c])
            store_value(b, b.add(out, i64(c * LANES * size)), b.fadd(value, shift), out_dtype, left)


@functools.cache
def tile(recipe, rows, count, out_dtype, is_decoded=False):
    """tile(arguments, first, panel, scratch, x, x_stride, x_sums, sums_stride, depth, out, out_stride, bias, columns): `rows` rows of x
    times `count` panels from `panel` on.

    arguments[first ..]: see NUM_ADDRESSES. is_decoded: the panels were decoded into the scratch. x_sums: float32, of each group, if the
    recipe has minimums. out, bias: of the first column; no bias: 0.
    """
    unrolled = recipe.block // RUN if rows == 1 or recipe.group == 2 * RUN else 1  # runs

    @intrinsic
    def product_tile(
        typing_context, arguments, first, panel, scratch, x, x_stride, x_sums, sums_stride, depth, out, out_stride, bias, columns
    ):
        def generate(context, b, s, args):
            arguments, first, panel, scratch, x, x_stride, x_sums, sums_stride, depth, out, out_stride, bias, columns = args
            panels = []
            for c in range(count):
                which = (b, recipe, arguments, first, b.add(panel, i64(c)))
                panels.append(DecodedPanel(*which, scratch, c, depth) if is_decoded else Panel(*which, count))
            x_rows, sum_rows, outs = (
                [b.add(start, b.mul(stride, i64(r))) for r in range(rows)]
                for start, stride in ((x, x_stride), (x_sums, sums_stride), (out, out_stride))
            )

            def one(run, sums):
                values = [panel.run(run) for panel in panels]
                for step in range(RUN // 2):
                    weights = [value(step) for value in values]
                    pair = b.add(b.mul(run, i64(RUN // 2)), i64(step))
                    new = []
                    for row, row_sums in zip(x_rows, _by_rows(sums, count)):
                        splat = _broadcast(b, row, pair)
                        new += [vectors.dot_pairs_value(b, total, splat, weight) for total, weight in zip(row_sums, weights)]
                    sums = new
                return sums

            def some(index, sums):
                for number in range(unrolled):
                    sums = one(b.add(b.mul(index, i64(unrolled)), i64(number)), sums)
                return sums

            def group(index, totals):
                sums = _zeros(rows * count)
                if recipe.group == unrolled * RUN:
                    sums = some(index, sums)
                else:
                    each = i64(recipe.group // (unrolled * RUN)) if recipe.group else b.udiv(depth, i64(unrolled * RUN))
                    begin = b.mul(index, each)
                    sums = loop(b, "runs", each, sums, lambda n, sums: some(b.add(begin, n), sums))
                scales, minimums = zip(*(panel.scales(index) for panel in panels))
                x_sum = [None] * rows
                if recipe.minimum:
                    x_sum = [splat_value(b, b.load(at(b, b.add(row, b.mul(index, i64(4))), f32), align=4), LANES) for row in sum_rows]
                new = _add_group(b, _by_rows(totals, count), _by_rows(sums, count), scales, minimums, x_sum)
                return [value for row in new for value in row]

            totals = loop(b, "groups", groups_of(b, recipe, depth), _zeros(rows * count), group)
            factors = [panel.factors() for panel in panels]
            _finish(b, _by_rows(totals, count), factors, outs, bias, columns, out_dtype)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 13), generate

    return product_tile


def _by_rows(values, count):
    return [values[start : start + count] for start in range(0, len(values), count)]


@functools.cache
def decode(recipe):
    """decode(arguments, first, panel, scratch, index, depth): a panel becomes panel `index` of those in the scratch: see DecodedPanel.

    Values lie as bf16 [pair of columns, lane, 2], scales and minimums as float32 [group, lane].
    """

    def at_index(index):
        @intrinsic
        def decode_panel(typing_context, arguments, first, panel, scratch, depth):
            def generate(context, b, s, args):
                arguments, first, panel, scratch, depth = args
                which = (b, recipe, arguments, first, panel)
                DecodedPanel(*which, scratch, index, depth).store(depth, Panel(*which))
                return context.get_dummy_value()

            return types.void(*[types.int64] * 5), generate

        return decode_panel

    return tuple(at_index(index) for index in range(PANELS))


def scratch_offsets(recipe, depth):
    """From the scratch of PANELS decoded panels to the scales of the first, and to its minimums."""
    values, scales = PANELS * depth * LANES * 2, PANELS * recipe.groups(depth) * VECTOR_BYTES
    return values, values + scales


def scratch_bytes(recipe, depth):
    """Of PANELS decoded panels."""
    values, minimums = scratch_offsets(recipe, depth)
    return 2 * minimums - values


@functools.cache
def product(recipe, out_dtype):
    """product(arguments, first, panel, end, scratch, x, x_stride, x_sums, sums_stride, depth, out, out_stride, bias, rows, n): rows of x
    times panels panel..end of n columns; of many rows most are multiplied with decoded panels. out, bias: of column 0.
    """
    size = vectors.SIZES[out_dtype]
    of_8, of_4, of_2, of_1 = (tile(recipe, rows, PANELS, out_dtype) for rows in (ROWS, 4, 2, 1))
    of_decoded, slim = tile(recipe, ROWS, PANELS, out_dtype, True), tile(recipe, 1, 1, out_dtype)
    decode_first, decode_second = decode(recipe)

    @compile.inner
    def whole(a, first, panel, end, scratch, x, x_stride, sums, sums_stride, depth, outs, out_stride, biases, rows, n):
        while panel < end:
            column = panel * LANES
            out, bias, left = outs + column * size, biases + column * 2 if biases else 0, n - column
            row = 0
            if panel + PANELS > end:
                while row < rows:
                    source, row_sums, target = x + row * x_stride, sums + row * sums_stride, out + row * out_stride
                    slim(a, first, panel, scratch, source, x_stride, row_sums, sums_stride, depth, target, out_stride, bias, left)
                    row += 1
                panel += 1
                continue
            if rows >= DECODED_FROM:
                decode_first(a, first, panel, scratch, depth)
                decode_second(a, first, panel + 1, scratch, depth)
                while row + ROWS <= rows:
                    source, row_sums, target = x + row * x_stride, sums + row * sums_stride, out + row * out_stride
                    of_decoded(a, first, panel, scratch, source, x_stride, row_sums, sums_stride, depth, target, out_stride, bias, left)
                    row += ROWS
            while row < rows:
                source, row_sums, target = x + row * x_stride, sums + row * sums_stride, out + row * out_stride
                if row + ROWS <= rows:
                    of_8(a, first, panel, scratch, source, x_stride, row_sums, sums_stride, depth, target, out_stride, bias, left)
                    row += ROWS
                elif row + 4 <= rows:
                    of_4(a, first, panel, scratch, source, x_stride, row_sums, sums_stride, depth, target, out_stride, bias, left)
                    row += 4
                elif row + 2 <= rows:
                    of_2(a, first, panel, scratch, source, x_stride, row_sums, sums_stride, depth, target, out_stride, bias, left)
                    row += 2
                else:
                    of_1(a, first, panel, scratch, source, x_stride, row_sums, sums_stride, depth, target, out_stride, bias, left)
                    row += 1
            panel += PANELS

    return whole
