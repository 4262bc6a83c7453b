"""Attention's softmax of one span: from the scores of a row to the weights of its keys, their maximum and their total.

A key that the row does not see has weight 0 exactly, whatever stood in its place. Two ways: `precise`, to the last bits of float32, and
`short`, for weights that are kept in bf16.
"""

import functools
import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from octavo.ops.cpu import vectors
from octavo.ops.cpu.attention_tiles import keep_between
from octavo.ops.cpu.compile import inner
from octavo.ops.cpu.vectors import BFloat, constant, f32, i16, i32
from octavo.ops.pages import TILE

_INFINITY = np.float32(np.inf)
_LOWEST = -200.0  # 2 to this power is 0
# 1 + r (a + r (b + r c)) is 2**r to 1 part in 6,600 for r from 0 to 1, and exact at both: the weights keep 8 bits
_POWER = (0.07944154, 0.22449434, 0.69606412)
_FLOOR, _AS_IT_IS = 9, 4  # of a rounding: downwards without exceptions; the mode that is set


def _power_of_2(b, x):
    """2 to each lane, which is at least _LOWEST."""
    kind = x.type
    lanes = kind.count
    every, mode = ir.Constant(i16, -1), i32(_AS_IT_IS)
    reduce = vectors.declare(b, "llvm.x86.avx512.mask.reduce.ps.512", kind, [kind, i32, kind, i16, i32])
    scale = vectors.declare(b, "llvm.x86.avx512.mask.scalef.ps.512", kind, [kind, kind, kind, i16, i32])
    rest = b.call(reduce, [x, i32(_FLOOR), ir.Constant(kind, None), every, mode])
    power = constant(f32, lanes, _POWER[0])
    for term in (*_POWER[1:], 1.0):
        power = vectors.fma_value(b, power, rest, constant(f32, lanes, term))
    return b.call(scale, [power, x, ir.Constant(kind, None), every, mode])


@intrinsic
def _weigh_pair(typing_context, scores, weights, factor, shift, total):
    """Of 32 scores their weights 2**(score * factor - shift), as bf16; the total takes them as they were rounded."""

    def generate(context, b, s, args):
        scores, weights, factor, shift, total = args
        kind = total.type
        lanes = kind.count
        lowest, less = constant(f32, lanes, _LOWEST), b.fneg(shift)
        powers = []
        for at in (0, lanes * 4):
            score = b.load(vectors.at(b, b.add(scores, vectors.i64(at)), kind), align=4)
            x = vectors.fma_value(b, score, factor, less)
            x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)  # nan stays nan
            powers.append(_power_of_2(b, x))
        pairs = ir.VectorType(BFloat(), 2 * lanes)
        narrow = vectors.declare(b, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", pairs, [kind, kind])
        packed = b.bitcast(b.call(narrow, [powers[1], powers[0]]), ir.VectorType(i32, lanes))
        b.store(packed, vectors.at(b, weights, packed.type), align=2)
        ones = constant(i32, lanes, 0x3F803F80)
        return vectors.dot_pairs_value(b, total, b.bitcast(packed, kind), b.bitcast(ones, kind))

    vector = vectors.FloatVector(TILE)
    return vector(types.int64, types.int64, vector, vector, vector), generate


def _capping():
    """cap_scores(scores, first, end, scale, cap): cap * tanh(scale * score / cap) in each one's place."""
    load, store, splat, exp = vectors.load("float32", TILE), vectors.store("float32", TILE), vectors.splat(TILE), vectors.exp
    one, two = np.float32(1.0), np.float32(2.0)

    @inner
    def cap_scores(scores, first, end, scale, cap):  # tanh(u) = 1 - 2 / (exp(2 u) + 1)
        for tile in range(first, end):
            grown = exp(load(scores + tile * TILE * 4) * (splat(scale) * (splat(two) / splat(cap))))
            store(scores + tile * TILE * 4, splat(cap) * (splat(one) - splat(two) / (grown + splat(one))))

    return cap_scores


def _hiding():
    """hide(scores, start, first, end, low, high): minus infinity where keys outside low..high stand; `start` is the span's first key.

    Tiles that lie wholly inside are left alone.
    """
    load, store = vectors.load("float32", TILE), vectors.store("float32", TILE)

    @inner
    def hide(scores, start, first, end, low, high):
        whole, whole_end = (low - start + TILE - 1) // TILE, max((high - start) // TILE, first)
        for tile in range(first, min(whole, end)):
            store(scores + tile * TILE * 4, keep_between(load(scores + tile * TILE * 4), start + tile * TILE, low, high))
        for tile in range(whole_end, end):
            store(scores + tile * TILE * 4, keep_between(load(scores + tile * TILE * 4), start + tile * TILE, low, high))

    return hide


@functools.cache
def softmax(how: str):
    """(find_top, weigh): a row's softmax over tiles first..end of the span, both even numbers.

    find_top(scores, start, first, end, low, high, scale, cap, sums): the scores of keys low..high are final, the others minus infinity,
    and their maximum is in sums[0]. weigh(scores, weights, first, end, scale, cap, sums): their weights, and the total in sums[1].
    """
    load, splat, maximum = vectors.load("float32", TILE), vectors.splat(TILE), vectors.maximum
    reduce_max, reduce_add, floats, exp = vectors.reduce_max, vectors.reduce_add, vectors.floats, vectors.exp
    store, zero, one, infinity = vectors.store("float32", TILE), np.float32(0.0), np.float32(1.0), _INFINITY
    cap_scores, hide, weigh_pair, to_power = _capping(), _hiding(), _weigh_pair, np.float32(math.log2(math.e))

    @inner
    def find_top(scores, start, first, end, low, high, scale, cap, sums):
        if cap > zero:
            cap_scores(scores, first, end, scale, cap)
        hide(scores, start, first, end, low, high)
        even = splat(-infinity)
        odd = even
        for tile in range(first, end, 2):
            even = maximum(load(scores + tile * TILE * 4), even)
            odd = maximum(load(scores + (tile + 1) * TILE * 4), odd)
        top = reduce_max(maximum(even, odd))
        floats(sums)[0] = top if cap > zero else top * scale

    @inner
    def weigh_short(scores, weights, first, end, scale, cap, sums):
        top, factor = floats(sums)[0], to_power if cap > zero else to_power * scale
        shift = splat(zero) if top == -infinity else splat(top * to_power)
        total = splat(zero)
        for tile in range(first, end, 2):
            total = weigh_pair(scores + tile * TILE * 4, weights + tile * TILE * 2, splat(factor), shift, total)
        floats(sums)[1] = reduce_add(total)

    @inner
    def weigh_precise(scores, weights, first, end, scale, cap, sums):
        top, factor = floats(sums)[0], one if cap > zero else scale
        shift = splat(zero) if top == -infinity else splat(top)
        total = splat(zero)
        for tile in range(first, end):
            weight = exp(load(scores + tile * TILE * 4) * splat(factor) - shift)
            store(weights + tile * TILE * 4, weight)
            total = total + weight
        floats(sums)[1] = reduce_add(total)

    return find_top, weigh_short if how == "dot" else weigh_precise
