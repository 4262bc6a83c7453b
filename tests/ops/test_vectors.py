"""Vectors: loads, stores and arithmetic are exact where they should be, and stay inside at the edge of an unmapped page, at every level."""

import os

import pytest
import torch

from octavo.ops.cpu import compile, features, pool, vectors
from tests.ops import guard


def test_the_level_is_that_of_the_cpu_compiled_for() -> None:
    expected = {"haswell": "avx2", "generic": "plain", "skylake-avx512": "avx512"}.get(os.environ.get("NUMBA_CPU_NAME", ""))
    assert features.level() == (expected or features.level())
    assert features.lanes() == features.LANES[features.level()]


def build_everything(dtype: str, lanes: int):
    """out rows: the number, its exp, its root, copied by scalars; then sum and largest of each vector."""
    load_part, store_part, read, write = (f(dtype, lanes) for f in (vectors.load_part, vectors.store_part, _scalar_read, _scalar_write))
    exp, root, reduce_add, reduce_max = vectors.exp, vectors.square_root, vectors.reduce_add, vectors.reduce_max
    int64s, floats, size = vectors.int64s, vectors.floats, vectors.SIZES[dtype]

    def units(begin, end, arguments):
        a = int64s(arguments)
        x, out, n, sums = a[0], a[1], a[2], floats(a[3])
        for unit in range(begin, end):
            at, left = unit * lanes * size, n - unit * lanes
            value = load_part(x + at, left)
            store_part(out + at, value, left)
            store_part(out + n * size + at, exp(value), left)
            store_part(out + 2 * n * size + at, root(value * value), left)
            for i in range(min(lanes, left)):
                write(out + 3 * n * size + at + i * size, read(x + at + i * size))
            sums[2 * unit], sums[2 * unit + 1] = reduce_add(value), reduce_max(value)

    return units


def _scalar_read(dtype: str, lanes: int):
    return vectors.read(dtype)


def _scalar_write(dtype: str, lanes: int):
    return vectors.write(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 7, 16, 61])
def test_vectors(dtype: torch.dtype, n: int) -> None:
    lanes = features.lanes()
    x = guard.copy((torch.randn(n, generator=torch.Generator().manual_seed(n)) * 5).to(dtype))
    x[0] = -0.0
    units = -(-n // lanes)
    out, sums = guard.empty(4, n, dtype=dtype), guard.empty(units, 2, dtype=torch.float32)
    arguments = pool.Arguments(4)
    arguments.set(x.data_ptr(), out.data_ptr(), n, sums.data_ptr())
    compile.kernel(build_everything, str(dtype)[6:], lanes)(units, 1, arguments)
    assert torch.equal(out[0], x)
    assert torch.equal(out[3], x)
    torch.testing.assert_close(out[1].double(), x.double().exp().to(dtype).double(), rtol=3e-7 if dtype == torch.float32 else 2**-8, atol=0)
    assert torch.equal(out[2], x.abs())
    padded = torch.cat((x.double(), torch.zeros(units * lanes - n))).view(units, lanes)
    torch.testing.assert_close(sums[:, 0].double(), padded.sum(1), rtol=1e-5, atol=1e-5)
    assert torch.equal(sums[:, 1].double(), padded.amax(1))


def build_narrow(lanes: int):
    load, store, int64s = vectors.load("float32", lanes), vectors.store("bfloat16", lanes), vectors.int64s

    def units(begin, end, arguments):
        a = int64s(arguments)
        for unit in range(begin, end):
            store(a[1] + unit * lanes * 2, load(a[0] + unit * lanes * 4))

    return units


def test_rounding_to_bfloat16_is_torchs() -> None:
    """All normal exponents, ties to both sides, infinities and nan. (The dot-product units take subnormals as zero, so none here.)"""
    high = torch.arange(0x0080, 0x7F81, dtype=torch.int32)  # the upper halves of positive normal numbers, and infinity
    low = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
    x = ((high[:, None] << 16) | low).flatten().view(torch.float32)
    x = torch.cat((x, -x, torch.zeros(-2 * len(x) % 16)))
    out = torch.empty(len(x), dtype=torch.bfloat16)
    arguments = pool.Arguments(2)
    arguments.set(x.data_ptr(), out.data_ptr())
    compile.kernel(build_narrow, features.lanes())(len(x) // features.lanes(), 64, arguments)
    expected = x.to(torch.bfloat16)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out[~out.isnan()].view(torch.int16), expected[~out.isnan()].view(torch.int16))
