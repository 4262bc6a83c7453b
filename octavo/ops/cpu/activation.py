"""gated_activation: act(gate) * up, sixteen lanes at a time, with one exp a lane."""

import numpy as np
import torch

from octavo.ops.cpu import features, vectors
from octavo.ops.cpu.compile import inner, kernel
from octavo.ops.cpu.pool import Arguments
from octavo.ops.cpu.rounding import round_to
from octavo.ops.gated_activation import Facts

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_GRAIN = 8192  # numbers below which a second thread costs more than it saves


def _silu(splat):
    one, zero = np.float32(1.0), np.float32(0.0)

    @inner
    def silu(g):
        return g / (splat(one) + vectors.exp(splat(zero) - g))

    return silu


def _gelu_tanh(splat):
    """g/2 * (1 + tanh(u)) is g * sigmoid(2u), which loses nothing where tanh is near -1."""
    one, zero = np.float32(1.0), np.float32(0.0)
    twice, cubic = np.float32(2.0 * np.sqrt(2.0 / np.pi)), np.float32(0.044715)

    @inner
    def gelu_tanh(g):
        u = splat(twice) * g * vectors.fma(splat(cubic) * g, g, splat(one))
        return g / (splat(one) + vectors.exp(splat(zero) - u))

    return gelu_tanh


def _gelu(splat):
    """g * Phi(g) with Phi from Abramowitz and Stegun 7.1.26, whose error is below 1.5e-7."""
    zero, half, one, two = (np.float32(v) for v in (0.0, 0.5, 1.0, 2.0))
    root, p = np.float32(np.sqrt(0.5)), np.float32(0.3275911)
    a1, a2, a3, a4, a5 = (np.float32(v) for v in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429))
    fma = vectors.fma

    @inner
    def gelu(g):
        x = vectors.maximum(g, splat(zero) - g) * splat(root)
        t = splat(one) / fma(splat(p), x, splat(one))
        poly = fma(fma(fma(fma(splat(a5), t, splat(a4)), t, splat(a3)), t, splat(a2)), t, splat(a1)) * t
        tail = splat(half) * poly * vectors.exp(splat(zero) - x * x)  # 1 - Phi(|g|)
        # g >= 0: g - g * tail; g < 0: g * tail. Both are max(g, 0) - |g| * tail
        return vectors.maximum(g, splat(zero)) - x * splat(two * root) * tail

    return gelu


_KINDS = {"silu": _silu, "gelu_tanh": _gelu_tanh, "gelu": _gelu}


def build(kind: str, dtype: str):
    """A body over tokens. arguments: out, gate_up, width, bytes between tokens of out and of gate_up."""
    lanes, size = features.lanes(), vectors.SIZES[dtype]
    load, load_part, store, store_part = (f(dtype, lanes) for f in (vectors.load, vectors.load_part, vectors.store, vectors.store_part))
    act, rounded = _KINDS[kind](vectors.splat(lanes)), round_to(dtype, lanes)

    def body(begin, end, arguments):
        a = vectors.int64s(arguments)
        width = a[2]
        for token in range(begin, end):
            out, gate = a[0] + token * a[3], a[1] + token * a[4]
            up = gate + width * size
            i = 0
            while i + lanes <= width:
                store(out + i * size, rounded(act(load(gate + i * size))) * load(up + i * size))
                i += lanes
            if i < width:
                rest = width - i
                value = rounded(act(load_part(gate + i * size, rest))) * load_part(up + i * size, rest)
                store_part(out + i * size, value, rest)

    return body


class Implementation:
    """gated_activation in numba."""

    def __init__(self, facts: Facts) -> None:
        self._kernel = kernel(build, facts.kind, DTYPES[facts.dtype])
        self._arguments = Arguments(5)
        self._width, self._size = facts.width, facts.dtype.itemsize

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if facts.dtype not in DTYPES:
            return f"dtype {facts.dtype} is neither float32 nor bfloat16"
        return None if facts.kind in _KINDS else f"activation {facts.kind} is unknown"

    def __call__(self, out: torch.Tensor, gate_up: torch.Tensor) -> None:
        size = self._size
        self._arguments.set(out.data_ptr(), gate_up.data_ptr(), self._width, out.stride(0) * size, gate_up.stride(0) * size)
        self._kernel(out.shape[0], max(1, _GRAIN // self._width), self._arguments)
