"""Random weights in every layout, for the cases of the ops that read them."""

import torch

from octavo.ops import gguf_blocks, weights
from octavo.ops.weights import Blocks, Coded, Dense, Layout, Tensors

_SCALES_AT = gguf_blocks.HALVES | {"MXFP4": ()}  # that has an exponent

# one of each kind of code, scale, zero and map, and every kind of block
LAYOUTS: tuple[Layout, ...] = (
    Coded(code="int8", group=0),
    Coded(code="uint8", group=32, has_zeros=True, scale="bfloat16"),
    Coded(code="int4_offset", group=32, scale="float16"),
    Coded(code="uint4", group=64, has_zeros=True, scale="bfloat16"),
    Coded(code="uint4", group=16, has_minimums=True, scale="bfloat16"),
    Coded(code="uint4", group=0, has_zeros=True, has_column_groups=True),
    Coded(code="uint3", group=32, has_zeros=True),
    Coded(code="uint2", group=64, has_zeros=True),
    Coded(code="float8_e4m3", group=128, shares_scale_rows=True),
    Coded(code="float8_e5m2", group=0, has_row_scales=True),
    Coded(code="float8_e4m3", group=32, scale="e8m0"),
    Coded(code="float4_e2m1", group=32, scale="e8m0"),
    Coded(code="float4_e2m1", group=16, scale="float8_e4m3", has_row_scales=True),
    Coded(code="float6_e2m3", group=32, scale="e8m0"),
    Coded(code="int7_offset", group=32, scale="bfloat16"),
    Coded(code="nf4", group=64),
    Coded(code="nf4", group=32, scale="nested", nested=4),
    *(Blocks(name) for name in _SCALES_AT),
)


def name(layout: Layout) -> str:
    """A layout in a few words, for a test's name."""
    if isinstance(layout, Coded):
        extras = [
            key for key in ("has_zeros", "has_minimums", "has_row_scales", "shares_scale_rows", "has_column_groups") if getattr(layout, key)
        ]
        return "-".join([layout.code, f"g{layout.group}", layout.scale, *extras])
    return layout.number_format if isinstance(layout, Blocks) else str(layout.dtype)[6:]


def step(layout: Layout) -> int:
    """What the columns must be a multiple of."""
    return gguf_blocks.SIZES[layout.number_format][0] if isinstance(layout, Blocks) else 1


def random(layout: Layout, rows: int, columns: int, seed: int = 5) -> Tensors:
    """A weight with numbers of magnitude 1 / sqrt(columns)."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(layout, Dense):
        return (torch.randn(rows, columns, generator=generator).mul(columns**-0.5).to(layout.dtype),)
    if isinstance(layout, Blocks):
        return (_blocks(layout.number_format, rows, columns, generator),)
    groups = -(-columns // (layout.group or columns))
    if layout.has_column_groups:
        groups = 5
    scale_rows = max(1, rows // 2) if layout.shares_scale_rows else rows
    codes = torch.randint(0, 2**layout.bits, (rows, columns), dtype=torch.uint8, generator=generator)
    if layout.code.startswith("float8"):
        codes[(codes & 0x7F) >= 0x78] = 0x30  # neither infinite nor nan
    largest = weights.code_values(layout.code, weights.pack_codes(codes, layout.bits), columns).abs().max().clamp(min=1)
    width = float(2 / largest) * columns**-0.5
    made = {
        "codes": weights.pack_codes(codes, layout.bits),
        "scales": _scales(layout.scale, (scale_rows, groups), width, generator),
        "zeros": torch.randint(0, 2**layout.bits, (scale_rows, groups), dtype=torch.uint8, generator=generator),
        "minimums": _scales(layout.scale, (scale_rows, groups), width, generator) if layout.has_minimums else None,
        "row_scales": torch.rand(rows, generator=generator).add(0.5),
        "scale_rows": torch.randint(0, scale_rows, (rows,), dtype=torch.int32, generator=generator),
        "groups": torch.randint(0, groups, (columns,), dtype=torch.int32, generator=generator),
        "scale_table": torch.rand(256, generator=generator).mul(width),
        "outer_scales": torch.rand(-(-(scale_rows * groups + 3) // max(1, layout.nested)), generator=generator).add(0.5),
        "outer_starts": torch.arange(scale_rows, dtype=torch.int32) * groups + 3,
        "scale_shift": torch.full((1,), width / 4),
    }
    return tuple(tensor for key in layout.names if (tensor := made[key]) is not None)


def _scales(scale: str, shape: tuple[int, int], width: float, generator: torch.Generator) -> torch.Tensor:
    if scale == "nested":
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    if scale == "e8m0":
        middle = 127 + round(torch.tensor(width).log2().item())
        return torch.randint(middle - 2, middle + 2, shape, dtype=torch.uint8, generator=generator)
    if scale == "float8_e4m3":  # beside a scale for the row, as the format has it
        width = max(width, 0.05)
    return torch.rand(shape, generator=generator).add(0.5).mul(width).to(weights.SCALES[scale])


def _blocks(number_format: str, rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    elements, size_bytes = gguf_blocks.SIZES[number_format]
    raw = torch.randint(0, 256, (rows * columns // elements, size_bytes), dtype=torch.uint8, generator=generator)
    if number_format == "MXFP4":
        raw[:, 0] = 127 + round(torch.tensor(columns**-0.5 / 3).log2().item())
    for at in _SCALES_AT[number_format]:
        raw[:, at : at + 2] = torch.rand(len(raw), 1, generator=generator).add(0.5).half().view(torch.uint8)
    largest = gguf_blocks.widen(raw[:64], number_format).abs().max()
    for at in _SCALES_AT[number_format]:
        halves = raw[:, at : at + 2].contiguous().view(torch.float16)
        raw[:, at : at + 2] = (halves.float() * float(2 / largest) * columns**-0.5).half().view(torch.uint8)
    return raw.view(rows, -1)
