"""GGUF's number formats, widened: blocks of bytes to float32, each bit for bit as ggml's own reference does it.

A block has one scale (or a scale and sub-scales) for its elements. Source of every layout: the block_* structures of ggml-common.h and
the dequantize_row_* functions of ggml-quants.c in llama.cpp. `blocks` is uint8 [blocks, bytes of a block], the result float32
[blocks, elements of a block].
"""

from collections.abc import Callable

import torch

from octavo.checkpoint import gguf

# format -> (elements, bytes) of a block
SIZES = {name: (elements, size_bytes) for name, elements, size_bytes in gguf.TYPES.values()}

# the numbers of the formats that store places in a table
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
MXFP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

# the bytes at which a block has float16 numbers: its scale, and the scale of its minimums or its minimum
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}

Widen = Callable[[torch.Tensor], torch.Tensor]


def widen(blocks: torch.Tensor, number_format: str) -> torch.Tensor:
    """float32 [blocks, elements of a block] of uint8 [blocks, bytes of a block]. KeyError for a format that is not in FORMATS."""
    return FORMATS[number_format](blocks)


def scales(rows: torch.Tensor, number_format: str) -> torch.Tensor:
    """float16 [blocks, 0 to 2]: what every block of rows of blocks, uint8 [rows, bytes], has of such numbers."""
    blocks = rows.reshape(-1, SIZES[number_format][1])
    found = [blocks[:, at : at + 2] for at in HALVES.get(number_format, ())]
    return torch.cat(found, 1).view(torch.float16) if found else torch.empty(len(blocks), 0, dtype=torch.float16)


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The float16 at byte `at` of each block, float32 [blocks, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, n] to float32 [blocks, 2 n]: the low halves of all bytes, then the high halves."""
    blocks, count = packed.shape
    out = torch.empty(blocks, 2 * count, dtype=torch.float32)
    out[:, :count] = packed & 15
    out[:, count:] = packed >> 4
    return out


def _fifth_bits(bits: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, 4], one bit an element, to float32 [blocks, 32] of 0 and 16."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return (((bits[:, :, None] >> shifts) & 1) << 4).flatten(1).float()


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    """scale f16, 16 bytes of nibbles (element j low, j + 16 high). y = (q - 8) scale."""
    return _nibbles(blocks[:, 2:]).sub_(8).mul_(_half(blocks, 0))


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    """scale f16, minimum f16, 16 bytes of nibbles. y = q scale + minimum."""
    return _nibbles(blocks[:, 4:]).mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    """scale f16, 4 bytes of fifth bits, 16 bytes of nibbles. y = (q - 16) scale."""
    return _nibbles(blocks[:, 6:]).add_(_fifth_bits(blocks[:, 2:6])).sub_(16).mul_(_half(blocks, 0))


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    """scale f16, minimum f16, 4 bytes of fifth bits, 16 bytes of nibbles. y = q scale + minimum."""
    return _nibbles(blocks[:, 8:]).add_(_fifth_bits(blocks[:, 4:8])).mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    """scale f16, 32 int8. y = q scale."""
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


def _k_scales(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The 12 bytes of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minimums, each float32 [blocks, 8].

    Of the first four the low 6 bits of bytes 0-3 and 4-7; the last four have their low nibbles in bytes 8-11 and their high 2 bits above
    the first four. Source: get_scale_min_k4 in ggml-quants.c.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = torch.cat([first & 63, (third & 15) | ((first >> 6) << 4)], dim=1)
    minimums = torch.cat([second & 63, (third >> 4) | ((second >> 6) << 4)], dim=1)
    return scales.float(), minimums.float()


def _k_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, 128] to float32 [blocks, 8, 32]: each run of 32 bytes is two sub-blocks, the low halves and the high."""
    return _nibbles(packed.reshape(-1, 32)).view(-1, 8, 32)


def _scaled_k(blocks: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """y = (d sub-scale) q - (dmin sub-minimum), for q [blocks, 8, 32]; d and dmin are the first two f16 of a block."""
    scales, minimums = _k_scales(blocks[:, 4:16])
    q.mul_((scales.mul_(_half(blocks, 0)))[:, :, None])
    return q.sub_((minimums.mul_(_half(blocks, 2)))[:, :, None]).flatten(1)


def _q4_k(blocks: torch.Tensor) -> torch.Tensor:
    """d f16, dmin f16, 12 bytes of sub-scales, 128 bytes of nibbles; 8 sub-blocks of 32."""
    return _scaled_k(blocks, _k_nibbles(blocks[:, 16:]))


def _q5_k(blocks: torch.Tensor) -> torch.Tensor:
    """d f16, dmin f16, 12 bytes of sub-scales, 32 bytes of fifth bits (bit k of byte l: element l of sub-block k), 128 bytes of nibbles."""
    q = _k_nibbles(blocks[:, 48:])
    shifts = torch.arange(8, dtype=torch.uint8)[:, None]
    return _scaled_k(blocks, q.add_(((blocks[:, None, 16:48] >> shifts) & 1) << 4))


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    """128 bytes of low nibbles, 64 bytes of 2 high bits, 16 int8 sub-scales, d f16; 16 sub-blocks of 16. y = (d sub-scale) (q - 32).

    Each half of 128 elements is four runs of 32: the low nibbles of its first and second 32 bytes, then their high nibbles; byte l of its
    32 bytes of high bits has two bits for element l of each run.
    """
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = torch.cat([low & 15, low >> 4], dim=2).view(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]
    q = (low | (((high >> shifts) & 3) << 4)).view(-1, 16, 16).float().sub_(32)
    scales = blocks[:, 192:208].view(torch.int8).float().mul_(_half(blocks, 208))
    return q.mul_(scales[:, :, None]).flatten(1)


def _two_bits(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, 64] to int [blocks, 2, 4, 32]: of each run of 32 bytes the lowest two bits of all, then the next two."""
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]
    return (packed.reshape(-1, 2, 1, 32) >> shifts) & 3


def _q2_k(blocks: torch.Tensor) -> torch.Tensor:
    """16 bytes of scales (low half) and minimums (high half) for 16 elements each, 64 bytes of two bits, d f16, dmin f16.

    y = (d scale) q - (dmin minimum).
    """
    both = blocks[:, :16]
    scales, minimums = (both & 15).float().mul_(_half(blocks, 80)), (both >> 4).float().mul_(_half(blocks, 82))
    q = _two_bits(blocks[:, 16:80]).float().view(-1, 16, 16)
    return q.mul_(scales[:, :, None]).sub_(minimums[:, :, None]).flatten(1)


def _q3_k(blocks: torch.Tensor) -> torch.Tensor:
    """32 bytes of third bits (bit k of byte l: element l of run k; 0 takes 4 off), 64 bytes of two bits, 12 bytes of scales, d f16.

    y = (d (scale - 32)) q. The low half of a 6 bit scale is in bytes 0-7, low halves first; its high two bits are in bytes 8-11.
    """
    packed = blocks[:, 96:108]
    low = torch.cat([packed[:, :8] & 15, packed[:, :8] >> 4], dim=1)
    high = (packed[:, 8:, None].transpose(1, 2) >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]) & 3
    scales = (low | (high.flatten(1) << 4)).float().sub_(32).mul_(_half(blocks, 108))
    shifts = torch.arange(8, dtype=torch.uint8)[:, None]
    third = ((blocks[:, None, :32] >> shifts) & 1).view(-1, 2, 4, 32)
    q = _two_bits(blocks[:, 32:96]).float().add_(third << 2).sub_(4).view(-1, 16, 16)
    return q.mul_(scales[:, :, None]).flatten(1)


def _looked_up(packed: torch.Tensor, table: tuple[int, ...]) -> torch.Tensor:
    """uint8 [blocks, n] to float32 [blocks, 2 n]: the table's numbers at the low halves of all bytes, then at the high halves."""
    return torch.tensor(table, dtype=torch.float32)[torch.cat([packed & 15, packed >> 4], dim=1).long()]


def _iq4_nl(blocks: torch.Tensor) -> torch.Tensor:
    """scale f16, 16 bytes of places in a table. y = table[q] scale."""
    return _looked_up(blocks[:, 2:], IQ4).mul_(_half(blocks, 0))


def _iq4_xs(blocks: torch.Tensor) -> torch.Tensor:
    """d f16, high two bits of eight 6 bit scales (16 bits), their low halves (4 bytes), 128 bytes of places in a table; sub-blocks of 32.

    y = (d (scale - 32)) table[q].
    """
    pairs = torch.arange(0, 16, 2, dtype=torch.int32)
    high = (blocks[:, 2:4].contiguous().view(torch.int16).to(torch.int32) >> pairs) & 3
    low = (blocks[:, 4:8, None] >> torch.tensor([0, 4], dtype=torch.uint8)).flatten(1) & 15
    scales = (low.to(torch.int32) | (high << 4)).float().sub_(32).mul_(_half(blocks, 0))
    numbers = _looked_up(blocks[:, 8:].reshape(-1, 16), IQ4).view(-1, 8, 32)
    return numbers.mul_(scales[:, :, None]).flatten(1)


def _mxfp4(blocks: torch.Tensor) -> torch.Tensor:
    """exponent, 16 bytes of E2M1. y = table[q] 2 ** (exponent - 128), where the table has twice the numbers of E2M1."""
    exponents = blocks[:, :1].to(torch.int32)
    # the two least powers are not normal numbers
    bits = torch.where(exponents < 2, torch.full_like(exponents, 0x200000) << exponents.clamp(max=1), (exponents - 1) << 23)
    return _looked_up(blocks[:, 1:], MXFP4).mul_(bits.view(torch.float32))


def _f32(blocks: torch.Tensor) -> torch.Tensor:
    return blocks.contiguous().view(torch.float32)


def _f16(blocks: torch.Tensor) -> torch.Tensor:
    return blocks.contiguous().view(torch.float16).float()


def _bf16(blocks: torch.Tensor) -> torch.Tensor:
    return blocks.contiguous().view(torch.bfloat16).float()


FORMATS: dict[str, Widen] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}
