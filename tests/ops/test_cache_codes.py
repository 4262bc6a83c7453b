"""Codes of the cache: the reference against searches through tables made from the formats' definitions, and the kernels against it."""

import math
import struct

import numpy as np
import pytest
import torch

from octavo.config.cache_formats import FORMATS, CacheFormat
from octavo.ops import rope_store
from octavo.ops.cache_codes import decode, encode
from octavo.ops.op import choose
from octavo.ops.pages import Layout
from tests.ops import guard

CODED = [kept for kept in FORMATS.values() if not kept.is_plain]
SCALE = float(np.float32(0.037))


def small_float(code: int, exponent_bits: int, fraction_bits: int) -> float:
    """A float's value by its definition; infinities and nans as the caller's format has them."""
    bias = 2 ** (exponent_bits - 1) - 1
    sign = -1.0 if code >> (exponent_bits + fraction_bits) else 1.0
    exponent, fraction = code >> fraction_bits & (2**exponent_bits - 1), code & (2**fraction_bits - 1)
    if exponent == 0:
        return sign * fraction / 2**fraction_bits * 2.0 ** (1 - bias)
    return sign * (1 + fraction / 2**fraction_bits) * 2.0 ** (exponent - bias)


TABLES = {
    "float8_e4m3": {code: small_float(code, 4, 3) for code in range(256) if code & 0x7F != 0x7F},
    "float8_e5m2": {code: small_float(code, 5, 2) for code in range(256) if code & 0x7F < 0x7C},
    "float4_e2m1": {code: small_float(code, 2, 1) for code in range(16)},
    "int8": {code & 0xFF: float(code) for code in range(-127, 128)},
    "uint4": {code: float(code) for code in range(16)},
}


def nearest(code: str, x: float) -> int:
    """The code whose value is nearest; of two the one whose last bit is 0. The sign of a zero is kept where the format has one."""
    if math.isnan(x):
        return 0x7F
    table = TABLES[code]
    has_sign = code.startswith("float")
    sides = {c: v for c, v in table.items() if math.copysign(1, v) == math.copysign(1, x)} if has_sign else table
    x = max(-1e9, min(1e9, x))  # where differences to the values are still exact
    least = min(abs(v - x) for v in sides.values())
    found = [c for c, v in sides.items() if abs(v - x) == least]
    return min(found, key=lambda c: (c if has_sign else int(table[c])) % 2)


def bf16(x: float) -> float:
    """The nearest bfloat16, ties to even, by the integer that its bits are."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return float(struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16))[0])


def by_definition(kept: CacheFormat, x: list[float], scale: float) -> tuple[list[int], bytes]:
    """Codes and side bytes of one vector, number by number; each operation rounded to float32."""
    f = np.float32
    with np.errstate(all="ignore"):
        if kept.scale == "layer":
            return [nearest(kept.code, float(f(v) / f(scale))) for v in x], b""
        if kept.scale == "group":
            codes, side = [], b""
            for start in range(0, len(x), 16):
                group = x[start : start + 16]
                is_broken = not all(map(math.isfinite, group))
                byte = 0x7F if is_broken else nearest("float8_e4m3", float(f(max(map(abs, group))) / (f(scale) * f(6))))
                step = f(0) if is_broken else f(TABLES["float8_e4m3"][byte]) * f(scale)
                codes += [nearest(kept.code, float(f(v) / step)) if step > 0 else 0 for v in group]
                side += bytes([byte])
            return codes, side
        is_broken = not all(map(math.isfinite, x))
        if kept.code == "uint4":
            step, lowest = bf16(float((f(max(x)) - f(min(x))) / f(15))), bf16(float(f(min(x)) + f(0)))
            if is_broken or not math.isfinite(step) or not math.isfinite(lowest):
                return [0] * len(x), struct.pack("<HH", 0x7FC0, 0x7FC0)
            side = struct.pack("<f", step)[2:] + struct.pack("<f", lowest)[2:]
            return [nearest(kept.code, float((f(v) - f(lowest)) / f(step))) if step > 0 else 0 for v in x], side
        if is_broken:
            return [0] * len(x), struct.pack("<I", 0x7FC00000)
        step32 = f(max(map(abs, x))) / f(127 if kept.code == "int8" else 448)
        return [nearest(kept.code, float(f(v) / step32)) if step32 > 0 else 0 for v in x], step32.tobytes()


def vectors() -> torch.Tensor:
    """[many, 32] float32: all magnitudes, ties, zeros of both signs, equal numbers, the tiniest and the largest, nan and infinities."""
    random = torch.Generator().manual_seed(0)
    rows = [torch.randn(32, generator=random) * 10.0**power for power in range(-8, 6)]
    steps = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 17.0, 19.0, 2**-10, 3 * 2**-10, 2**-17, 440.0, 448.0, 464.0)
    ties = torch.tensor([step * SCALE for step in steps])
    rows += [torch.cat((ties, -ties)), torch.zeros(32), -torch.zeros(32), torch.full((32,), 0.3), torch.full((32,), -2.5)]
    rows += [torch.cat((torch.zeros(16), -torch.zeros(16))), torch.arange(32) / 31 * 15, torch.arange(-127.0, -95.0)]
    rows += [torch.full((32,), 1e-45), torch.full((32,), 3e38) * torch.tensor([1.0, -1.0]).repeat(16), torch.arange(32) * 1e-41]
    broken = torch.randn(3, 32, generator=random)
    broken[0, 5], broken[1, 20], broken[2, 31] = torch.nan, torch.inf, -torch.inf
    return torch.cat((torch.stack(rows), broken))


@pytest.mark.parametrize("kept", CODED, ids=lambda kept: kept.name)
def test_the_reference_equals_the_definition(kept: CacheFormat) -> None:
    x = vectors()
    codes, side = encode(kept, x, SCALE)
    assert side.shape == (len(x), kept.side_bytes(32))
    for row, found, beside in zip(x.tolist(), codes.tolist(), side, strict=True):
        assert (found, bytes(beside.tolist())) == by_definition(kept, row, SCALE), row


@pytest.mark.parametrize("kept", CODED, ids=lambda kept: kept.name)
def test_decoding_equals_the_tables(kept: CacheFormat) -> None:
    """Every code, and what broken vectors become."""
    table = TABLES[kept.code]
    codes = torch.tensor(sorted(table), dtype=torch.uint8)
    codes = torch.cat((codes, codes[: -len(codes) % 16]))
    values = torch.tensor([table[code] for code in codes.tolist()])
    if kept.scale == "layer":
        assert torch.equal(decode(kept, codes, codes[:0], SCALE), values * SCALE)
    elif kept.scale == "group":
        assert torch.equal(decode(kept, codes, torch.tensor([0x39], dtype=torch.uint8), SCALE), values * (1.125 * torch.tensor(SCALE)))
    elif kept.code == "uint4":
        side = torch.tensor([0.75, -3.5]).to(torch.bfloat16).view(torch.uint8)
        assert torch.equal(decode(kept, codes, side), values * 0.75 - 3.5)
    else:
        assert torch.equal(decode(kept, codes, torch.tensor([0.37]).view(torch.uint8)), values * torch.tensor(0.37))
    x = vectors()
    back = decode(kept, *encode(kept, x, SCALE), SCALE)
    finite = x.isfinite().all(-1)
    assert back[finite & (x.abs().amax(-1) < 1e38)].isfinite().all()
    unit = {"layer": 1, "group": 16}.get(kept.scale, 32)
    for row, found in zip(x[~finite].unflatten(-1, (-1, unit)), back[~finite].unflatten(-1, (-1, unit)), strict=True):
        is_broken = row.isnan().any(-1) if kept.scale == "layer" else ~row.isfinite().all(-1)
        assert torch.equal(found.isnan().all(-1), is_broken)


@pytest.mark.parametrize("kept", CODED, ids=lambda kept: kept.name)
def test_decoded_numbers_are_near(kept: CacheFormat) -> None:
    """Half a step of the format, at most."""
    x = torch.randn(200, 64, generator=torch.Generator().manual_seed(3))
    error = (decode(kept, *encode(kept, x, SCALE), SCALE) - x).abs()
    largest = x.abs().amax(-1, keepdim=True)
    bound = {
        "fp8_e4m3": x.abs() / 16 + SCALE * 2**-10,
        "fp8_e5m2": x.abs() / 8 + SCALE * 2**-17,
        "fp8_per_token_head": x.abs() / 16 + largest / 448 * 2**-10,
        "int8_per_token_head": largest / 254,
        # a step, and what rounding the two ends to bfloat16 cuts off
        "int4_per_token_head": (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)) / 30 + largest * 2**-5,
        "nvfp4": x.unflatten(-1, (-1, 16)).abs().amax(-1, keepdim=True).expand(-1, -1, 16).flatten(-2) / 5.5,
    }[kept.name]
    assert (error <= bound * 1.0001).all()


@pytest.mark.parametrize("kept", CODED, ids=lambda kept: kept.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_kernel_stores_what_the_reference_encodes(kept: CacheFormat, dtype: torch.dtype) -> None:
    """Numbers of every kind as keys and as values, bit for bit."""
    layout = Layout(kind="tiles", num_kv_heads=1, head_dim=32, block_size=16, format=kept)
    facts = rope_store.Facts(num_heads=1, layout=layout, dtype=dtype, rotary_dim=0)
    x = vectors().to(dtype)[:, None]
    slots, scales = torch.randperm(48, generator=torch.Generator().manual_seed(1))[: len(x)], torch.tensor([SCALE, 0.9])
    assert len(slots) == len(x)
    expected, found = (guard.copy(torch.zeros(3, layout.page_bytes, dtype=torch.uint8)) for _ in range(2))
    value = x.flip(0).contiguous()
    layout.write(expected, slots, x, value, tuple(scales.tolist()))
    choice = choose("rope_store", facts)
    assert choice.name == "cpu.rope_store"
    choice.implementation(x.clone(), x.clone(), value, None, torch.zeros(len(x), dtype=torch.int32), found, slots, scales)
    assert torch.equal(found, expected)


def test_formats_say_their_sizes() -> None:
    """Bytes of one token in 3 heads of 64 numbers."""
    found = {kept.name: kept.bytes_per_token(3, 64) for kept in FORMATS.values()}
    assert found == {
        "float32": 1536,
        "bfloat16": 768,
        "float16": 768,
        "fp8_e4m3": 384,
        "fp8_e5m2": 384,
        "fp8_per_token_head": 408,
        "int8_per_token_head": 408,
        "int4_per_token_head": 216,
        "nvfp4": 216,
    }
