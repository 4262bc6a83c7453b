"""Attention's inner loops, in LLVM's own terms: blocks of rows by tiles of 16 keys whose sums stay in registers.

A number's sum runs over the dimensions (scores) or the keys (values) in ascending order, whatever the block's shape, so a block may be
cut in any way without changing a bit. Three ways to multiply, chosen by name:

dot     pages and rows in bf16, pairs through dpbf16ps
pairs   pages in bf16, rows in float32: pairs are taken apart, the even number first
single  pages and rows in float32
"""

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.ops.cpu import vectors
from octavo.ops.cpu.vectors import constant, f32, i32, i64, prefetch_value, splat_value
from octavo.ops.pages import TILE

SPAN = 256  # keys of the fixed grid: scores of one span are made, normalised and summed before the next
SPAN_TILES = SPAN // TILE
AHEAD = 4  # tiles: a list of their addresses is longer by so many, which are fetched meanwhile
ROW_BYTES = {"dot": 2, "pairs": 4, "single": 4}  # of a number in a row of queries or probabilities
PAIR = {"dot": 2, "pairs": 2, "single": 1}  # keys or dimensions that a step consumes
VECTOR = ir.VectorType(f32, TILE)
_NEAR = 2  # the second cache: lines on their way to the first one are fewer than memory needs to be busy


def _load(b, address, align=4):
    return b.load(vectors.at(b, address, VECTOR), align=align)


def _broadcast(b, address):
    """The four bytes at an address, in every lane."""
    return splat_value(b, b.load(vectors.at(b, address, f32), align=2), TILE)


class _Loop:
    """for i in range(0, count, 1) with running values: `values` are phis inside and results after."""

    def __init__(self, b, count, zeros):
        self._b = b
        before = b.block
        self._head, self._body, self._after = (b.append_basic_block(name) for name in ("head", "body", "after"))
        b.branch(self._head)
        b.position_at_end(self._head)
        self.index = b.phi(i64)
        self.index.add_incoming(i64(0), before)
        self.values = [b.phi(zero.type) for zero in zeros]
        for phi, zero in zip(self.values, zeros):
            phi.add_incoming(zero, before)
        b.cbranch(b.icmp_signed("<", self.index, count), self._body, self._after)
        b.position_at_end(self._body)

    def close(self, values):
        b = self._b
        self.index.add_incoming(b.add(self.index, i64(1)), b.block)
        for phi, value in zip(self.values, values):
            phi.add_incoming(value, b.block)
        b.branch(self._head)
        b.position_at_end(self._after)


def _multiply(b, how, sums, rows, columns, is_half=False):
    """sums[r][c] + rows[r] * columns[c], where rows are addresses of one step's number or pair and columns are vectors.

    is_half: only the even key of the pair exists; what stands in the other's place is not looked at.
    """
    if how == "dot":
        if is_half:
            even = constant(i32, TILE, 0xFFFF)
            integers = ir.VectorType(i32, TILE)
            columns = [b.bitcast(b.and_(b.bitcast(column, integers), even), VECTOR) for column in columns]
        rows = [_broadcast(b, row) for row in rows]
        return [[vectors.dot_pairs_value(b, sums[r][c], row, column) for c, column in enumerate(columns)] for r, row in enumerate(rows)]
    if how == "pairs":
        parts = [vectors.split_pairs_value(b, column) for column in columns]
        result = []
        for r, row in enumerate(rows):
            even = _broadcast(b, row)
            line = [vectors.fma_value(b, even, part[0], sums[r][c]) for c, part in enumerate(parts)]
            if not is_half:
                odd = _broadcast(b, b.add(row, i64(4)))
                line = [vectors.fma_value(b, odd, part[1], line[c]) for c, part in enumerate(parts)]
            result.append(line)
        return result
    rows = [_broadcast(b, row) for row in rows]
    return [[vectors.fma_value(b, row, column, sums[r][c]) for c, column in enumerate(columns)] for r, row in enumerate(rows)]


def _cut(flat, width):
    return [list(flat[start : start + width]) for start in range(0, len(flat), width)]


def _addresses(b, listed, first, count):
    return [b.load(vectors.at(b, b.add(listed, i64(8 * (first + i))), i64), align=8) for i in range(count)]


@functools.cache
def score_tiles(how, rows, columns, apart):
    """score_tiles(queries, tiles, scores, head_dim): scores[r][c] for `rows` queries and the tiles at `columns` addresses.

    queries `apart` numbers from row to row, scores float32 SPAN apart. tiles: the address of the addresses.
    """
    pair, size = PAIR[how], ROW_BYTES[how]

    @intrinsic
    def score(typing_context, queries, tiles, scores, head_dim):
        def generate(context, b, s, args):
            queries, tiles, scores, head_dim = args
            keys, later = (_addresses(b, tiles, first, columns) for first in (0, AHEAD))
            loop = _Loop(b, b.ashr(head_dim, i64(pair - 1)), [ir.Constant(VECTOR, None)] * (rows * columns))
            across = b.mul(loop.index, i64(pair * size))
            numbers = [b.add(queries, b.add(across, i64(r * apart * size))) for r in range(rows)]
            down = b.mul(loop.index, i64(4 * TILE))
            loaded = [_load(b, b.add(key, down)) for key in keys]
            for key in later:
                prefetch_value(b, b.add(key, down), _NEAR)
            sums = _multiply(b, how, _cut(loop.values, columns), numbers, loaded)
            loop.close([x for line in sums for x in line])
            for r, line in enumerate(_cut(loop.values, columns)):
                for c, value in enumerate(line):
                    b.store(value, vectors.at(b, b.add(scores, i64(4 * (r * SPAN + c * TILE))), VECTOR), align=4)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.int64), generate

    return score


@functools.cache
def value_tiles(how, rows, columns, apart):
    """value_tiles(weights, tiles, offset, count, out, head_dim): out[r] = the sum of weights[r][k] * values[k] over `count` keys.

    For `columns` vectors from byte `offset` of a row of values, which also is their place in a row of out. weights SPAN apart from row to
    row, out float32 `apart` apart. tiles: the address of one address for each 16 keys.
    """
    pair, size = PAIR[how], ROW_BYTES[how]
    steps = TILE // pair
    shift = steps.bit_length() - 1

    @intrinsic
    def add_values(typing_context, weights, tiles, offset, count, out, head_dim):
        def step(b, args, index, sums, is_half):
            weights, tiles, offset, _, _, head_dim = args
            place = b.add(tiles, b.shl(b.ashr(index, i64(shift)), i64(3)))
            tile, later = (b.load(vectors.at(b, b.add(place, i64(8 * far)), i64), align=8) for far in (0, AHEAD))
            down = b.mul(b.and_(index, i64(steps - 1)), b.shl(head_dim, i64(2)))
            start = b.add(b.add(tile, offset), down)
            loaded = [_load(b, b.add(start, i64(4 * TILE * c))) for c in range(columns)]
            for c in range(columns):
                prefetch_value(b, b.add(b.add(b.add(later, offset), down), i64(4 * TILE * c)), _NEAR)
            across = b.mul(index, i64(pair * size))
            numbers = [b.add(weights, b.add(across, i64(r * SPAN * size))) for r in range(rows)]
            flat = _multiply(b, how, _cut(sums, columns), numbers, loaded, is_half)
            return [x for line in flat for x in line]

        def generate(context, b, s, args):
            _, _, offset, count, out, _ = args
            whole = b.ashr(count, i64(pair - 1))
            loop = _Loop(b, whole, [ir.Constant(VECTOR, None)] * (rows * columns))
            loop.close(step(b, args, loop.index, loop.values, False))
            results = loop.values
            if pair == 2:
                results = _if_odd(b, count, results, lambda: step(b, args, whole, results, True))
            to = b.add(out, offset)
            for r, line in enumerate(_cut(results, columns)):
                for c, value in enumerate(line):
                    b.store(value, vectors.at(b, b.add(to, i64(4 * (r * apart + TILE * c))), VECTOR), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return add_values


def _if_odd(b, count, values, more):
    """`values`, or what `more()` makes of them where count is odd."""
    before, odd, after = b.block, b.append_basic_block("odd"), b.append_basic_block("even")
    b.cbranch(b.trunc(count, ir.IntType(1)), odd, after)
    b.position_at_end(odd)
    changed = more()
    end = b.block
    b.branch(after)
    b.position_at_end(after)
    merged = [b.phi(value.type) for value in values]
    for phi, old, new in zip(merged, values, changed):
        phi.add_incoming(old, before)
        phi.add_incoming(new, end)
    return merged


@intrinsic
def keep_between(typing_context, scores, first, low, high):
    """Lane i is kept where low <= first + i < high, and minus infinity elsewhere."""

    def generate(context, b, s, args):
        scores, first, low, high = args
        lanes = scores.type.count
        iota = ir.Constant(ir.VectorType(i32, lanes), list(range(lanes)))
        from_low, below_high = (splat_value(b, b.trunc(b.sub(bound, first), i32), lanes) for bound in (low, high))
        inside = b.and_(b.icmp_signed(">=", iota, from_low), b.icmp_signed("<", iota, below_high))
        return b.select(inside, scores, constant(f32, lanes, float("-inf")))

    return scores(scores, types.int64, types.int64, types.int64), generate


@intrinsic
def first_lane(typing_context, vector):
    """Lane 0."""
    return types.float32(vector), lambda context, b, s, args: b.extract_element(args[0], i32(0))


@intrinsic
def take_number(typing_context, address):
    """Add 1 to the int32 at an address that threads share; its value before. All that was written before is seen by who comes later."""

    def generate(context, b, s, args):
        return b.sext(b.atomic_rmw("add", vectors.at(b, args[0], i32), i32(1), "seq_cst"), i64)

    return types.int64(types.int64), generate
