"""The op `sample` on numba: a thread takes whole rows; a row's result depends on nothing but that row.

Two vector passes (the largest logit, the weights), then integers: thresholds are found digit by digit on the bits of the weights, which
order as the weights do, counting tokens for top-k and mass for top-p.
"""

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.ops import sample as op
from octavo.ops.cpu import compile, features, pool
from octavo.ops.cpu import vectors as v
from octavo.ops.sample import Facts

_DIGIT = 10  # bits; a weight's bits are below 2**30, since it is at most 1
_BUCKETS = 1 << _DIGIT


@intrinsic
def unordered(typing_context, seen, vector):
    """`seen`, with 1 in each lane in which `vector` is nan."""

    def generate(context, b, s, args):
        return b.select(b.fcmp_unordered("uno", args[1], args[1]), v.constant(v.f32, args[0].type.count, 1.0), args[0])

    return seen(seen, vector), generate


@intrinsic
def weight(typing_context, vector):
    """ops.sample.exponential of each lane: products and sums apart, never fused."""

    def generate(context, b, s, args):
        (x,) = args
        lanes = x.type.count

        def number(value):
            return v.constant(v.f32, lanes, value)

        low = b.fcmp_ordered("<", x, number(op.LOWEST))
        clamped = b.select(low, number(op.LOWEST), x)
        shifted = b.fadd(b.fmul(clamped, number(op.LOG2_E)), number(op.SHIFT))
        n = b.fsub(shifted, number(op.SHIFT))
        r = b.fsub(clamped, b.fmul(n, number(op.LN2_HIGH)))
        r = b.fsub(r, b.fmul(n, number(op.LN2_LOW)))
        power = number(op.TERMS[0])
        for term in op.TERMS[1:]:
            power = b.fadd(b.fmul(power, r), number(term))
        integers = ir.VectorType(v.i32, lanes)
        bits = b.sub(b.bitcast(shifted, integers), v.constant(v.i32, lanes, 0x4B400000))
        scale = b.bitcast(b.shl(b.add(bits, v.constant(v.i32, lanes, 127)), v.constant(v.i32, lanes, 23)), x.type)
        return b.select(low, number(0.0), b.fmul(power, scale))

    return vector(vector), generate


def allowed(lanes):
    """allowed(vector, address, index) -> vector: lane j with its number where bit index + j of the mask at `address` is set, else -inf.

    index is a multiple of lanes, so that the bits of one vector are one piece of memory, or a half of one byte.
    """

    @intrinsic
    def allowed_lanes(typing_context, vector, address, index):
        def generate(context, b, s, args):
            x, base, first = args
            width = max(8, lanes)
            piece = ir.IntType(width)
            byte = b.add(base, b.lshr(first, v.i64(3)))
            bits = b.load(v.at(b, byte, piece), align=1)
            if lanes < 8:
                bits = b.lshr(bits, b.trunc(b.and_(first, v.i64(7)), piece))
                bits = b.trunc(bits, ir.IntType(lanes))
            chosen = b.bitcast(bits, ir.VectorType(ir.IntType(1), lanes))
            return b.select(chosen, x, v.constant(v.f32, lanes, float("-inf")))

        return vector(vector, types.int64, types.int64), generate

    return allowed_lanes


@intrinsic
def mass_of(typing_context, value):
    """floor(float32 * 2**MASS_BITS) as int64."""

    def generate(context, b, s, args):
        wide = b.fpext(args[0], ir.DoubleType())
        return b.fptosi(b.fmul(wide, ir.Constant(ir.DoubleType(), 2.0**op.MASS_BITS)), v.i64)

    return types.int64(types.float32), generate


def build(lanes: int):
    load, load_part, store, store_part, splat = (
        v.load("float32", lanes),
        v.load_part("float32", lanes),
        v.store("float32", lanes),
        v.store_part("float32", lanes),
        v.splat(lanes),
    )
    only_allowed = allowed(lanes)
    int64s, int32s, floats, doubles, stack = v.int64s, v.int32s, v.floats, v.doubles, v.stack(8 * _BUCKETS)
    maximum, reduce_max, single = v.maximum, v.reduce_max, v.single
    buckets, digit = _BUCKETS, _DIGIT
    infinity = float("inf")
    not_a_number, nothing_allowed = op.NOT_A_NUMBER, op.NOTHING_ALLOWED

    @compile.inner
    def find_largest(row, width):
        """The largest logit; nan if any is nan."""
        best, seen = splat(single(-infinity)), splat(single(0.0))
        i = 0
        while i + lanes <= width:
            x = load(row + i * 4)
            best, seen = maximum(x, best), unordered(seen, x)
            i += lanes
        largest, broken = reduce_max(best), reduce_max(seen)
        values = floats(row)
        while i < width:
            if values[i] != values[i]:
                broken = single(1.0)
            elif values[i] > largest:
                largest = values[i]
            i += 1
        return single(infinity) if broken > single(0.0) else largest

    @compile.inner
    def mask_and_find_largest(row, width, mask):
        """The largest allowed logit, after the others have become -inf; nan if any is nan."""
        best, seen = splat(single(-infinity)), splat(single(0.0))
        i = 0
        while i + lanes <= width:
            x = load(row + i * 4)
            seen = unordered(seen, x)
            x = only_allowed(x, mask, i)
            store(row + i * 4, x)
            best = maximum(x, best)
            i += lanes
        largest, broken = reduce_max(best), reduce_max(seen)
        values, words = floats(row), int32s(mask)
        while i < width:
            if values[i] != values[i]:
                broken = single(1.0)
            elif (words[i >> 5] >> (i & 31)) & 1 == 0:
                values[i] = single(-infinity)
            elif values[i] > largest:
                largest = values[i]
            i += 1
        return single(infinity) if broken > single(0.0) else largest

    @compile.inner
    def make_weights(row, width, largest, factor):
        top, scale = splat(largest), splat(factor)
        i = 0
        while i + lanes <= width:
            store(row + i * 4, weight((load(row + i * 4) - top) * scale))
            i += lanes
        if i < width:
            store_part(row + i * 4, weight((load_part(row + i * 4, width - i) - top) * scale), width - i)

    @compile.inner
    def threshold(row, width, lowest, by_mass, wanted, histogram):
        """The bits of the largest weight such that those at least as large, and at least `lowest`, are `wanted` in number or in mass."""
        bits, values, sums = int32s(row), floats(row), int64s(histogram)
        prefix, above = 0, 0
        for step in range(3):
            shift = (2 - step) * digit
            for bucket in range(buckets):
                sums[bucket] = 0
            for i in range(width):
                key = bits[i]
                if key >= lowest and (key >> (shift + digit)) == prefix:
                    sums[(key >> shift) & (buckets - 1)] += mass_of(values[i]) if by_mass else 1
            bucket = buckets - 1
            while bucket > 0 and float(above + sums[bucket]) < wanted:
                above += sums[bucket]
                bucket -= 1
            prefix = (prefix << digit) | bucket
        return max(prefix, lowest)

    @compile.inner
    def mass_from(row, width, lowest):
        bits, values = int32s(row), floats(row)
        total = 0
        for i in range(width):
            if bits[i] >= lowest:
                total += mass_of(values[i])
        return total

    @compile.inner
    def count_from(row, width, lowest):
        bits = int32s(row)
        total = 0
        for i in range(width):
            if bits[i] >= lowest:
                total += 1
        return total

    @compile.inner
    def draw(row, width, lowest, target):
        bits, values = int32s(row), floats(row)
        running = 0
        for i in range(width):
            if bits[i] >= lowest:
                running += mass_of(values[i])
                if running > target:
                    return i
        return width - 1

    @compile.inner
    def sample_row(row, width, mask, temperature, min_p_bits, top_k, top_p, uniform, keep_weights, histogram):
        largest = find_largest(row, width) if mask == 0 else mask_and_find_largest(row, width, mask)
        if largest == infinity:
            return not_a_number
        if largest == -infinity:
            return nothing_allowed
        values = floats(row)
        if temperature == single(0.0):
            i = 0
            while values[i] != largest:
                i += 1
            return i
        make_weights(row, width, largest, single(1.0) / temperature)
        lowest = max(min_p_bits, 1)
        if top_k > 0 and count_from(row, width, lowest) > top_k:
            lowest = threshold(row, width, lowest, False, float(top_k), histogram)
        total = mass_from(row, width, lowest)
        if top_p < 1.0:
            lowest = threshold(row, width, lowest, True, top_p * float(total), histogram)
            total = mass_from(row, width, lowest)
        if keep_weights:
            bits = int32s(row)
            for i in range(width):
                if bits[i] < lowest:
                    bits[i] = 0
        return draw(row, width, lowest, min(int(uniform * float(total)), total - 1))

    def rows(begin, end, arguments):
        a = int64s(arguments)
        tokens, chosen, min_p_bits, top_ks = int32s(a[0]), int32s(a[2]), int32s(a[4]), int32s(a[5])
        temperatures, top_ps, uniforms = floats(a[3]), doubles(a[6]), doubles(a[7])
        width, histogram = a[9], stack()
        for i in range(begin, end):
            mask = 0
            if a[11] != 0:
                mask_rows = int32s(a[12])
                if mask_rows[i] >= 0:
                    mask = a[11] + mask_rows[i] * a[13]
            tokens[i] = sample_row(
                a[1] + chosen[i] * a[8],
                width,
                mask,
                temperatures[i],
                min_p_bits[i],
                top_ks[i],
                top_ps[i],
                uniforms[i],
                a[10] != 0,
                histogram,
            )

    return rows


class Implementation:
    """See ops.sample.Reference."""

    def __init__(self, facts: Facts) -> None:
        self._kernel = compile.kernel(build, features.lanes())
        self._arguments = pool.Arguments(14)
        self._width = facts.vocab_size

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    def __call__(
        self,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        rows: torch.Tensor,
        temperatures: torch.Tensor,
        min_ps: torch.Tensor,
        top_ks: torch.Tensor,
        top_ps: torch.Tensor,
        uniforms: torch.Tensor,
        keep_weights: bool = False,
        masks: torch.Tensor | None = None,
        mask_rows: torch.Tensor | None = None,
    ) -> None:
        columns = (temperatures, min_ps, top_ks, top_ps, uniforms)
        self._arguments.set(
            tokens.data_ptr(),
            logits.data_ptr(),
            rows.data_ptr(),
            *(column.data_ptr() for column in columns),
            logits.stride(0) * 4,
            self._width,
            int(keep_weights),
            0 if masks is None else masks.data_ptr(),
            0 if mask_rows is None else mask_rows.data_ptr(),
            0 if masks is None else masks.stride(0) * 4,
        )
        self._kernel(len(rows), 1, self._arguments)
