"""RMS norm: one pass for the sum of squares, one for the product; a row's sum has an order of its own that nothing else changes."""

import numpy as np
import torch

from octavo.ops.cpu import features, vectors
from octavo.ops.cpu.compile import inner, kernel
from octavo.ops.cpu.pool import Arguments, bits
from octavo.ops.cpu.rounding import round_to
from octavo.ops.rms_norm import Facts

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_GRAIN = 32768  # numbers below which a second thread costs more than it saves


def build(dtype: str, weight_dtype: str, cast_first: bool, adds: bool):
    """A body over tokens. arguments: out, x, residual, weight, heads, width, (token, head) strides of out, x and residual, eps, offset."""
    lanes, size, weight_size = features.lanes(), vectors.SIZES[dtype], vectors.SIZES[weight_dtype]
    load, load_part, store, store_part = (f(dtype, lanes) for f in (vectors.load, vectors.load_part, vectors.store, vectors.store_part))
    weight_load, weight_part = vectors.load(weight_dtype, lanes), vectors.load_part(weight_dtype, lanes)
    splat, rounded, fma = vectors.splat(lanes), round_to(dtype, lanes), vectors.fma
    step = lanes * size

    @inner
    def add(residual, x, width):
        i = 0
        while i + lanes <= width:
            store(residual + i * size, load(residual + i * size) + load(x + i * size))
            i += lanes
        if i < width:
            rest = width - i
            store_part(residual + i * size, load_part(residual + i * size, rest) + load_part(x + i * size, rest), rest)

    @inner
    def sum_of_squares(x, width):
        a = b = c = d = splat(np.float32(0.0))
        i = 0
        while i + 4 * lanes <= width:
            at = x + i * size
            v, w, y, z = load(at), load(at + step), load(at + 2 * step), load(at + 3 * step)
            a, b, c, d = fma(v, v, a), fma(w, w, b), fma(y, y, c), fma(z, z, d)
            i += 4 * lanes
        while i + lanes <= width:
            v = load(x + i * size)
            a = fma(v, v, a)
            i += lanes
        if i < width:
            v = load_part(x + i * size, width - i)
            b = fma(v, v, b)
        return vectors.reduce_add((a + b) + (c + d))

    @inner
    def scale(x, factor, weight, offset):
        y = x * factor
        return (rounded(y) if cast_first else y) * (weight + offset)

    @inner
    def normalise(out, x, weight, width, eps, offset):
        mean = splat(sum_of_squares(x, width)) / splat(np.float32(width))
        factor = splat(np.float32(1.0)) / vectors.square_root(mean + splat(eps))
        shift = splat(offset)
        i = 0
        while i + lanes <= width:
            store(out + i * size, scale(load(x + i * size), factor, weight_load(weight + i * weight_size), shift))
            i += lanes
        if i < width:
            rest = width - i
            part = weight_part(weight + i * weight_size, rest)
            store_part(out + i * size, scale(load_part(x + i * size, rest), factor, part, shift), rest)

    def body(begin, end, arguments):
        a = vectors.int64s(arguments)
        eps, offset = np.float32(vectors.doubles(arguments)[12]), np.float32(vectors.doubles(arguments)[13])
        for token in range(begin, end):
            for head in range(a[4]):
                out = a[0] + token * a[6] + head * a[7]
                x = a[1] + token * a[8] + head * a[9]
                if adds:
                    residual = a[2] + token * a[10] + head * a[11]
                    add(residual, x, a[5])
                    x = residual
                normalise(out, x, a[3], a[5], eps, offset)

    return body


def refuses(facts: Facts) -> str | None:
    """Why the kernel cannot do this, or None."""
    if facts.dtype not in DTYPES:
        return f"dtype {facts.dtype} is neither float32 nor bfloat16"
    if facts.weight_dtype not in DTYPES:
        return f"weight dtype {facts.weight_dtype} is neither float32 nor bfloat16"
    return None


class Norm:
    """The kernel for one set of facts, with or without the sum before it."""

    def __init__(self, facts: Facts, adds: bool) -> None:
        self._kernel = kernel(build, DTYPES[facts.dtype], DTYPES[facts.weight_dtype], facts.cast_before_weight, adds)
        self._arguments = Arguments(14)
        self._width = facts.width
        self._size = facts.dtype.itemsize
        self._eps, self._offset = bits(facts.eps), bits(facts.offset)

    def _strides(self, x: torch.Tensor) -> tuple[int, int]:
        """Bytes between tokens and between heads; x has its heads in at most one dimension."""
        return x.stride(0) * self._size, (x.stride(1) * self._size if x.dim() == 3 else 0)

    def run(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> None:
        heads = x.shape[1] if x.dim() == 3 else 1
        addresses = (out.data_ptr(), x.data_ptr(), residual.data_ptr(), weight.data_ptr())
        strides = (*self._strides(out), *self._strides(x), *self._strides(residual))
        self._arguments.set(*addresses, heads, self._width, *strides, self._eps, self._offset)
        self._kernel(x.shape[0], max(1, _GRAIN // (heads * self._width)), self._arguments)


class Implementation:
    """rms_norm in numba: x and out [tokens, width] or [tokens, heads, width]."""

    refuses = staticmethod(refuses)

    def __init__(self, facts: Facts) -> None:
        self._norm = Norm(facts, adds=False)

    def __call__(self, out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
        self._norm.run(out, x, x, weight)
