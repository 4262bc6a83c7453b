"""Vectors: float32 vectors of one register as values in numba code, with loads, stores and arithmetic at raw addresses.

A vector of n lanes is a value of type FloatVector(n); + - * / work between two of the same length. What touches memory is made by a
factory, `load(dtype, lanes)` and so on, in a kernel's builder; what only computes (`fma`, `exp`, `reduce_add` ...) is called directly.
Addresses are int64 and need no alignment beyond the element's. A reduction's order depends only on the number of lanes.
"""

import functools
import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, register_model

from octavo.ops.cpu import features

single = np.float32  # in a kernel too: a float literal there is a float64
SIZES = {"float32": 4, "bfloat16": 2}  # bytes of an element in memory; in registers all are float32

i8, i16, i32, i64, f32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()


class BFloat(ir.Type):
    """LLVM's `bfloat`, which llvmlite does not name."""

    def _to_string(self):
        return "bfloat"

    def __eq__(self, other):
        return isinstance(other, BFloat)

    def __hash__(self):
        return hash("bfloat")

    def get_abi_size(self, *args, **kwargs):
        return 2


class FloatVector(types.Type):
    """`lanes` float32 numbers in one register."""

    def __init__(self, lanes):
        self.lanes = lanes
        super().__init__(name=f"FloatVector({lanes})")


@register_model(FloatVector)
class _FloatVectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, ir.VectorType(f32, fe_type.lanes))


def constant(kind, lanes, value):
    """A vector constant with the same value in each lane."""
    return ir.Constant(ir.VectorType(kind, lanes), [value] * lanes)


def declare(builder, name, result, arguments):
    """An external function, an LLVM intrinsic for instance, declared once in the module."""
    return builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def at(builder, address, kind):
    """An address as a pointer."""
    return builder.inttoptr(address, kind.as_pointer())


def splat_value(builder, scalar, lanes):
    """A scalar in every lane."""
    vector = ir.VectorType(scalar.type, lanes)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, i32(0))
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), constant(i32, lanes, 0))


def fma_value(builder, a, b, c):
    """a * b + c, rounded once where the CPU can."""
    if features.level() == "plain":
        return builder.fadd(builder.fmul(a, b), c)
    kind = a.type
    suffix = f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32"
    return builder.call(declare(builder, f"llvm.fma.{suffix}", kind, [kind] * 3), [a, b, c])


def widen_value(builder, halves):
    """bf16 bits (i16 vector) as float32: the same bits, sixteen places higher."""
    lanes = halves.type.count
    wide = builder.zext(halves, ir.VectorType(i32, lanes))
    return builder.bitcast(builder.shl(wide, constant(i32, lanes, 16)), ir.VectorType(f32, lanes))


def narrow_value(builder, value):
    """float32 as bf16 bits (i16 vector), to the nearest, ties to even; nan stays nan."""
    lanes = value.type.count
    if features.level() == "avx512bf16" and lanes >= 4:
        return builder.bitcast(builder.fptrunc(value, ir.VectorType(BFloat(), lanes)), ir.VectorType(i16, lanes))
    bits = builder.bitcast(value, ir.VectorType(i32, lanes))
    odd = builder.and_(builder.lshr(bits, constant(i32, lanes, 16)), constant(i32, lanes, 1))
    rounded = builder.add(bits, builder.add(odd, constant(i32, lanes, 0x7FFF)))
    quiet = builder.or_(bits, constant(i32, lanes, 0x400000))
    rounded = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
    return builder.trunc(builder.lshr(rounded, constant(i32, lanes, 16)), ir.VectorType(i16, lanes))


def mask_value(builder, count, lanes):
    """Lanes below `count` (int64, may be negative or too large)."""
    iota = ir.Constant(ir.VectorType(i64, lanes), list(range(lanes)))
    return builder.icmp_signed("<", iota, splat_value(builder, count, lanes))


def load_value(builder, address, dtype, lanes, count=None):
    """`lanes` numbers of memory format `dtype` as float32; with `count`, only the first so many are read and the rest are 0."""
    element, size = (f32, 4) if dtype == "float32" else (i16, 2)
    kind = ir.VectorType(element, lanes)
    pointer = at(builder, address, kind)
    if count is None:
        value = builder.load(pointer, align=size)
    else:
        mask = mask_value(builder, count, lanes)
        name = f"llvm.masked.load.v{lanes}{'f32' if element is f32 else 'i16'}.p0"
        load = declare(builder, name, kind, [pointer.type, i32, mask.type, kind])
        value = builder.call(load, [pointer, i32(size), mask, ir.Constant(kind, None)])
    return value if element is f32 else widen_value(builder, value)


def store_value(builder, address, value, dtype, count=None):
    """Write float32 lanes in memory format `dtype`; with `count`, only the first so many."""
    size = SIZES[dtype]
    if dtype == "bfloat16":
        value = narrow_value(builder, value)
    kind = value.type
    pointer = at(builder, address, kind)
    if count is None:
        builder.store(value, pointer, align=size)
        return
    mask = mask_value(builder, count, kind.count)
    name = f"llvm.masked.store.v{kind.count}{'f32' if size == 4 else 'i16'}.p0"
    store = declare(builder, name, ir.VoidType(), [kind, pointer.type, i32, mask.type])
    builder.call(store, [value, pointer, i32(size), mask])


# -- memory


@functools.cache
def load(dtype, lanes):
    """load(address) -> vector: `lanes` numbers of `dtype` ("float32" or "bfloat16")."""

    @intrinsic
    def load_vector(typing_context, address):
        return FloatVector(lanes)(types.int64), lambda context, b, s, args: load_value(b, args[0], dtype, lanes)

    return load_vector


@functools.cache
def load_part(dtype, lanes):
    """load_part(address, count) -> vector: the first `count` numbers (at most `lanes`, at least 0), the rest 0 and not read."""

    @intrinsic
    def load_vector_part(typing_context, address, count):
        signature = FloatVector(lanes)(types.int64, types.int64)
        return signature, lambda context, b, s, args: load_value(b, args[0], dtype, lanes, args[1])

    return load_vector_part


@functools.cache
def store(dtype, lanes):
    """store(address, vector)."""

    @intrinsic
    def store_vector(typing_context, address, vector):
        def generate(context, b, s, args):
            store_value(b, args[0], args[1], dtype)
            return context.get_dummy_value()

        return types.void(types.int64, FloatVector(lanes)), generate

    return store_vector


@functools.cache
def store_part(dtype, lanes):
    """store_part(address, vector, count): only the first `count` lanes are written."""

    @intrinsic
    def store_vector_part(typing_context, address, vector, count):
        def generate(context, b, s, args):
            store_value(b, args[0], args[1], dtype, args[2])
            return context.get_dummy_value()

        return types.void(types.int64, FloatVector(lanes), types.int64), generate

    return store_vector_part


@functools.cache
def read(dtype):
    """read(address) -> float32: one number of `dtype`."""

    @intrinsic
    def read_number(typing_context, address):
        def generate(context, b, s, args):
            return b.extract_element(load_value(b, args[0], dtype, 1), i32(0))

        return types.float32(types.int64), generate

    return read_number


@functools.cache
def write(dtype):
    """write(address, float32): one number, rounded to `dtype`."""

    @intrinsic
    def write_number(typing_context, address, value):
        def generate(context, b, s, args):
            store_value(b, args[0], b.insert_element(ir.Constant(ir.VectorType(f32, 1), ir.Undefined), args[1], i32(0)), dtype)
            return context.get_dummy_value()

        return types.void(types.int64, types.float32), generate

    return write_number


def _pointer_to(scalar):
    @intrinsic
    def cast(typing_context, address):
        pointer = types.CPointer(scalar)
        return pointer(types.int64), lambda context, b, s, args: b.inttoptr(args[0], context.get_value_type(pointer))

    return cast


# address -> something to index: doubles(arguments)[3]
int64s, int32s, floats, doubles = (_pointer_to(t) for t in (types.int64, types.int32, types.float32, types.float64))


@functools.cache
def stack(size_bytes):
    """stack() -> address of `size_bytes` bytes of this call's stack, aligned to 64; uninitialized. Call it outside loops."""

    @intrinsic
    def take(typing_context):
        def generate(context, b, s, args):
            with b.goto_entry_block():
                space = b.alloca(ir.ArrayType(ir.IntType(8), size_bytes))
            space.align = 64
            return b.ptrtoint(space, i64)

        return types.int64(), generate

    return take


def prefetch_value(builder, address, locality=3):
    """Ask for the cache line at an address, to the nearest cache (3) or to the next one behind it (2); never faults."""
    pointer = at(builder, address, i8)
    fetch = declare(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer.type, i32, i32, i32])
    builder.call(fetch, [pointer, i32(0), i32(locality), i32(1)])


def _fetching(locality):
    @intrinsic
    def fetch(typing_context, address):
        def generate(context, b, s, args):
            prefetch_value(b, args[0], locality)
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return fetch


# prefetch(address) asks for a cache line that is read soon; prefetch_later(address) for one that nearer things should not yield to
prefetch, prefetch_later = _fetching(3), _fetching(2)


# -- arithmetic


@functools.cache
def splat(lanes):
    """splat(float32) -> vector with it in every lane."""

    @intrinsic
    def splat_vector(typing_context, value):
        return FloatVector(lanes)(types.float32), lambda context, b, s, args: splat_value(b, args[0], lanes)

    return splat_vector


def _arithmetic(function, build):
    class Template(AbstractTemplate):
        def generic(self, args, kws):
            if len(args) == 2 and isinstance(args[0], FloatVector) and args[0] == args[1]:
                return signature(args[0], *args)
            return None

    infer_global(function)(Template)

    def lower(context, b, s, args):
        return build(b)(*args)

    lower_builtin(function, FloatVector, FloatVector)(lower)


_arithmetic(operator.add, lambda b: b.fadd)
_arithmetic(operator.sub, lambda b: b.fsub)
_arithmetic(operator.mul, lambda b: b.fmul)
_arithmetic(operator.truediv, lambda b: b.fdiv)


@intrinsic
def fma(typing_context, a, b, c):
    """a * b + c of three vectors, rounded once (twice at level "plain")."""
    return a(a, a, a), lambda context, builder, s, args: fma_value(builder, *args)


@intrinsic
def maximum(typing_context, a, b):
    """The larger of each lane; b where either is nan."""
    return a(a, a), lambda context, builder, s, args: builder.select(builder.fcmp_ordered(">", *args), *args)


@intrinsic
def minimum(typing_context, a, b):
    """The smaller of each lane; b where either is nan."""
    return a(a, a), lambda context, builder, s, args: builder.select(builder.fcmp_ordered("<", *args), *args)


def _fold(builder, vector, combine):
    """Halves onto each other until one lane is left."""
    lanes = vector.type.count
    while lanes > 1:
        lanes //= 2
        low, high = (ir.Constant(ir.VectorType(i32, lanes), list(range(start, start + lanes))) for start in (0, lanes))
        undefined = ir.Constant(vector.type, ir.Undefined)
        vector = combine(builder.shuffle_vector(vector, undefined, low), builder.shuffle_vector(vector, undefined, high))
    return builder.extract_element(vector, i32(0))


def fold_value(builder, vector):
    """The sum of the lanes, in an order that depends only on their number."""
    return _fold(builder, vector, builder.fadd)


@intrinsic
def reduce_add(typing_context, vector):
    """The sum of the lanes, in an order that depends only on their number."""
    return types.float32(vector), lambda context, b, s, args: fold_value(b, args[0])


@intrinsic
def reduce_max(typing_context, vector):
    """The largest lane."""

    def generate(context, b, s, args):
        return _fold(b, args[0], lambda x, y: b.select(b.fcmp_ordered(">", x, y), x, y))

    return types.float32(vector), generate


def exp_value(b, x):
    """e to each lane, to about 1 part in 10**7: 2**n * e**r with |r| <= ln(2) / 2, e**r by its Taylor terms up to r**7.

    Below -87.3 it is 0; above 88.7 infinity; nan stays nan.
    """
    kind, lanes = x.type, x.type.count
    integers = ir.VectorType(i32, lanes)

    def number(value):
        return constant(f32, lanes, value)

    low, high = b.fcmp_ordered("<", x, number(-87.33)), b.fcmp_ordered(">", x, number(88.72))
    clamped = b.select(low, number(-87.33), b.select(high, number(88.72), x))
    shift = number(12582912.0)  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
    shifted = fma_value(b, clamped, number(1.4426950408889634), shift)
    n = b.fsub(shifted, shift)
    r = fma_value(b, n, number(-0.693145751953125), clamped)
    r = fma_value(b, n, number(-1.42860677e-06), r)
    power = number(1.0 / 5040)
    for term in (1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0):
        power = fma_value(b, power, r, number(term))
    # 2**n in two factors: n can be 128
    bits = b.sub(b.bitcast(shifted, integers), constant(i32, lanes, 0x4B400000))
    half = b.ashr(bits, constant(i32, lanes, 1))
    for part in (half, b.sub(bits, half)):
        factor = b.bitcast(b.shl(b.add(part, constant(i32, lanes, 127)), constant(i32, lanes, 23)), kind)
        power = b.fmul(power, factor)
    return b.select(low, number(0.0), b.select(high, number(float("inf")), power))


@intrinsic
def exp(typing_context, vector):
    """e to the power of each lane; see exp_value."""
    return vector(vector), lambda context, b, s, args: exp_value(b, args[0])


@intrinsic
def square_root(typing_context, vector):
    """The square root of each lane, correctly rounded."""

    def generate(context, b, s, args):
        kind = args[0].type
        return b.call(declare(b, f"llvm.sqrt.v{kind.count}f32", kind, [kind]), [args[0]])

    return vector(vector), generate


@intrinsic
def dot_pairs(typing_context, acc, a, b):
    """acc + dot products of bf16 pairs: a and b are vectors whose lanes each hold two bf16 bit patterns (from `load_pairs`).

    One instruction at level "avx512bf16"; elsewhere two fused multiply-adds, the even number first. The two differ in rounding.
    """

    def generate(context, builder, s, args):
        return dot_pairs_value(builder, *args)

    return acc(acc, acc, acc), generate


def dot_pairs_value(builder, acc, a, b):
    """See dot_pairs; a and b are float32 vectors by type, pairs of bf16 by content."""
    kind, lanes = acc.type, acc.type.count
    if features.level() == "avx512bf16" and lanes == 16:
        pairs = ir.VectorType(BFloat(), 32)
        dot = declare(builder, "llvm.x86.avx512bf16.dpbf16ps.512", kind, [kind, pairs, pairs])
        return builder.call(dot, [acc, builder.bitcast(a, pairs), builder.bitcast(b, pairs)])
    (a_even, a_odd), (b_even, b_odd) = (split_pairs_value(builder, v) for v in (a, b))
    return fma_value(builder, a_odd, b_odd, fma_value(builder, a_even, b_even, acc))


def split_pairs_value(builder, pairs):
    """(even, odd) float32 vectors of a vector of bf16 pairs."""
    kind, lanes = pairs.type, pairs.type.count
    bits = builder.bitcast(pairs, ir.VectorType(i32, lanes))
    even = builder.bitcast(builder.shl(bits, constant(i32, lanes, 16)), kind)
    return even, builder.bitcast(builder.and_(bits, constant(i32, lanes, 0xFFFF0000)), kind)


@functools.cache
def load_pairs(lanes):
    """load_pairs(address) -> a vector of 2 * lanes bf16 numbers, for dot_pairs only."""

    @intrinsic
    def load_pair_vector(typing_context, address):
        kind = ir.VectorType(f32, lanes)
        return FloatVector(lanes)(types.int64), lambda context, b, s, args: b.load(at(b, args[0], kind), align=2)

    return load_pair_vector


@functools.cache
def splat_pair(lanes):
    """splat_pair(address) -> the two bf16 numbers at an address, in every lane, for dot_pairs only."""

    @intrinsic
    def splat_pair_vector(typing_context, address):
        def generate(context, b, s, args):
            return splat_value(b, b.load(at(b, args[0], f32), align=2), lanes)

        return FloatVector(lanes)(types.int64), generate

    return splat_pair_vector
