"""Weights: how the numbers of a weight [rows, columns] lie in memory, and which numbers they are. Kernels read these layouts.

A layout is plain data and part of an op's facts; the tensors it describes are handed over beside it, in the order that it names. Every
number format of the disk is kept in one of three layouts: as plain numbers, as codes with scales, or as GGUF's blocks.
"""

from dataclasses import dataclass

import torch

from octavo.ops import gguf_blocks

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Dense:
    """(weight [rows, columns],) in a floating-point format."""

    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Coded:
    """number[r, c] = ((value of the code - zero) * scale + minimum) * row scale, in float32; what is absent is left out.

    code: a key of CODES. group: how many columns share a scale; 0 = all. The tensors, in this order:
      codes      uint8 [rows, ceil(columns * bits / 8)]; a row is a run of bits, lowest first
      scales     [scale rows, groups] in the format `scale`, a key of SCALES; viewed as uint8 where torch cannot compute with it
      zeros      uint8 [scale rows, groups], if has_zeros
      minimums   [scale rows, groups] in the format `scale`, if has_minimums
      row_scales float32 [rows], if has_row_scales
      scale_rows int32 [rows]: which row of scales a row has, if shares_scale_rows; else its own
      groups     int32 [columns]: the group of each column, if has_column_groups (a checkpoint with act-order); else column // group

    Scales may be codes themselves (scale "nested", uint8): scale[r, g] = table[code] * outer[(start[r] + g) // nested] + shift, with
      scale_table   float32 [256]
      outer_scales  float32 [any]
      outer_starts  int32 [scale rows]: where a row of scales begins in the run that they were coded in
      scale_shift   float32 [1]
    """

    code: str
    group: int
    scale: str = "float32"
    has_zeros: bool = False
    has_minimums: bool = False
    has_row_scales: bool = False
    shares_scale_rows: bool = False
    has_column_groups: bool = False
    nested: int = 0

    @property
    def bits(self) -> int:
        return CODES[self.code][0]

    @property
    def names(self) -> tuple[str, ...]:
        """What the tensors are called."""
        optional = {
            "zeros": self.has_zeros,
            "minimums": self.has_minimums,
            "row_scales": self.has_row_scales,
            "scale_rows": self.shares_scale_rows,
            "groups": self.has_column_groups,
        }
        nested = ("scale_table", "outer_scales", "outer_starts", "scale_shift") if self.nested else ()
        return ("codes", "scales", *(name for name, is_there in optional.items() if is_there), *nested)


@dataclass(frozen=True, slots=True)
class Blocks:
    """(weight uint8 [rows, bytes of a row],): rows of GGUF's blocks of one format, as they are on disk."""

    number_format: str


Layout = Dense | Coded | Blocks

# floating-point codes and look-up tables, by the code's bits
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# the quantiles of a normal distribution, Dettmers et al., "QLoRA", appendix E
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
FP4_E2M1 = (*_E2M1, *(-value for value in _E2M1))
_E2M3 = (*(part / 8 for part in range(8)), *((1 + part / 8) * 2.0**power for power in range(3) for part in range(8)))
FP6_E2M3 = (*_E2M3, *(-value for value in _E2M3))
# bitsandbytes' own float of 4 bits: sign, two exponent bits and one of fraction, scaled to at most 1
_FP4_BNB = (0.0, 0.0052083334, 0.6666667, 1.0, 0.33333334, 0.5, 0.16666667, 0.25)
FP4_BNB = (*_FP4_BNB, *(-value for value in _FP4_BNB))

# code -> (bits, how its value is told): "signed", "unsigned", "offset" (unsigned minus half the range), a torch float format, or a table
CODES: dict[str, tuple[int, str | torch.dtype | tuple[float, ...]]] = {
    "int8": (8, "signed"),
    "uint8": (8, "unsigned"),
    "uint2": (2, "unsigned"),
    "uint3": (3, "unsigned"),
    "uint4": (4, "unsigned"),
    "uint5": (5, "unsigned"),
    "uint6": (6, "unsigned"),
    "uint7": (7, "unsigned"),
    "int2_offset": (2, "offset"),
    "int3_offset": (3, "offset"),
    "int4_offset": (4, "offset"),
    "int5_offset": (5, "offset"),
    "int6_offset": (6, "offset"),
    "int7_offset": (7, "offset"),
    "int8_offset": (8, "offset"),
    "float8_e4m3": (8, torch.float8_e4m3fn),
    "float8_e5m2": (8, torch.float8_e5m2),
    "float4_e2m1": (4, FP4_E2M1),
    "float6_e2m3": (6, FP6_E2M3),
    "nf4": (4, NF4),
    "fp4_bnb": (4, FP4_BNB),
}

# format of scales -> the torch format that its bytes are
SCALES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3": torch.float8_e4m3fn,
    "e8m0": torch.uint8,  # 2 ** (byte - 127); 255 is nan
    "nested": torch.uint8,  # codes, see Coded
}


def decode(layout: Layout, tensors: Tensors, rows: int, columns: int) -> torch.Tensor:
    """The weight as float32 [rows, columns]: each number exactly what its format says, rounded once."""
    if isinstance(layout, Dense):
        return tensors[0].float()
    if isinstance(layout, Blocks):
        _, size_bytes = gguf_blocks.SIZES[layout.number_format]
        return gguf_blocks.widen(tensors[0].reshape(-1, size_bytes), layout.number_format).view(rows, columns)
    named = dict(zip(layout.names, tensors, strict=True))
    group = named["groups"].long() if "groups" in named else torch.arange(columns) // (layout.group or columns)
    row = named["scale_rows"].long() if "scale_rows" in named else torch.arange(rows)
    place = (row[:, None], group[None, :])
    numbers = code_values(layout.code, named["codes"], columns)
    if "zeros" in named:
        numbers -= named["zeros"].float()[place]
    numbers *= _scales(layout, named)[place]
    if "minimums" in named:
        numbers += scale_values(layout.scale, named["minimums"])[place]
    if "row_scales" in named:
        numbers *= named["row_scales"][:, None]
    return numbers


def _scales(layout: Coded, named: dict[str, torch.Tensor]) -> torch.Tensor:
    """float32 [scale rows, groups]."""
    if not layout.nested:
        return scale_values(layout.scale, named["scales"])
    codes = named["scales"].long()
    outer = (named["outer_starts"].long()[:, None] + torch.arange(codes.shape[1])) // layout.nested
    return named["scale_table"][codes] * named["outer_scales"][outer] + named["scale_shift"]


def select_rows(layout: Layout, tensors: Tensors, rows: torch.Tensor) -> Tensors:
    """The weight of those rows alone, int64 [n], in the same layout."""
    if not isinstance(layout, Coded):
        return (tensors[0][rows],)
    shared = {"groups", "scale_table", "outer_scales", "scale_shift"}
    if layout.shares_scale_rows:
        shared |= {"scales", "zeros", "minimums", "outer_starts"}
    return tuple(tensor if name in shared else tensor[rows] for name, tensor in zip(layout.names, tensors, strict=True))


def unpack_codes(packed: torch.Tensor, bits: int, columns: int) -> torch.Tensor:
    """uint8 [rows, columns] of uint8 [rows, ceil(columns * bits / 8)]: a row is a run of bits, lowest first."""
    if bits == 8:
        return packed[:, :columns]
    if bits in (1, 2, 4):
        shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
        return ((packed[:, :, None] >> shifts) & (2**bits - 1)).flatten(1)[:, :columns]
    unpacked = (packed[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=packed.device)) & 1
    one = unpacked.flatten(1)[:, : columns * bits].view(packed.shape[0], columns, bits)
    return (one << torch.arange(bits, dtype=torch.uint8, device=packed.device)).sum(-1, dtype=torch.uint8)


def pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """The inverse of unpack_codes, for codes uint8 [rows, columns]; a last byte that is not full ends in zeros."""
    if bits == 8:
        return codes.contiguous()
    rows, columns = codes.shape
    size = -(-columns * bits // 8)
    if codes.is_meta:
        return torch.empty(rows, size, dtype=torch.uint8, device="meta")
    if bits in (1, 2, 4):
        each = 8 // bits
        whole = torch.zeros(rows, size * each, dtype=torch.uint8)
        whole[:, :columns] = codes
        shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
        return (whole.view(rows, size, each) << shifts).sum(-1, dtype=torch.uint8)
    ones = torch.zeros(rows, size * 8, dtype=torch.uint8)
    ones[:, : columns * bits] = ((codes[:, :, None] >> torch.arange(bits, dtype=torch.uint8)) & 1).flatten(1)
    return (ones.view(rows, size, 8) << torch.arange(8, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)


def code_values(code: str, packed: torch.Tensor, columns: int) -> torch.Tensor:
    """float32 [rows, columns] of packed codes."""
    bits, kind = CODES[code]
    if isinstance(kind, torch.dtype):
        return packed[:, :columns].contiguous().view(kind).float()
    codes = unpack_codes(packed, bits, columns)
    if isinstance(kind, tuple):
        return torch.tensor(kind, dtype=torch.float32)[codes.long()]
    if kind == "signed":
        return codes.contiguous().view(torch.int8).float()
    return codes.float() if kind == "unsigned" else codes.float() - 2 ** (bits - 1)


def scale_values(scale: str, scales: torch.Tensor) -> torch.Tensor:
    """float32 of scales in one of SCALES."""
    if scale != "e8m0":
        return scales.view(SCALES[scale]).float()
    # 2 ** -127 is not a normal number: its bits are those of half the least one
    exponents = scales.to(torch.int32)
    bits = torch.where(exponents == 0, torch.tensor(1 << 22, dtype=torch.int32), exponents << 23)
    values = bits.view(torch.float32)
    return torch.where(exponents == 255, torch.tensor(float("nan")), values)
