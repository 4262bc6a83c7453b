"""Coded panels: how a coded weight [n, k] lies in memory for the coded tile: 16 of its rows beside each other, so that one load feeds all.

A panel is a run in each of a few planes, tensors [panels, bytes] that hold for 16 rows:
  low       the codes' low four bits, or all eight. Four: runs of eight columns, 64 bytes each, as [lane, column % 2] words of 16 bits
            whose nibbles, lowest first, are columns 0, 2, 4, 6 (or 1, 3, 5, 7). Eight: [pair of columns, column % 2, lane] bytes, or
            where the CPU looks bytes up, [two pairs of columns, lane / 4, pair, lane % 4, column % 2]
  high      the codes' bits above four: 64 bytes a block, [lane, column % 2] words with those of all its columns of that parity, lowest
            first
  scales    [group, lane] in the recipe's format
  minimums  likewise
  supers    float16 [super-group, 1 or 2, lane]: what the group's scale and minimum are multiplied with
  rows      float32 [lane]: what the row's sums are multiplied with
Bytes are as many as are stored, but for rows that fill the last panel, which are zeros.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from octavo.device import memory
from octavo.ops import gguf_blocks, weights
from octavo.ops.cpu import features
from octavo.ops.weights import Blocks, Coded, Layout, Tensors

LANES = 16
PLANES = ("low", "high", "scales", "minimums", "supers", "rows")
# bytes of a number of each format of scales
SCALE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "e8m0": 1, "half_power": 1, "float8_e4m3": 1, "int8": 1, "uint8": 1}
_ROWS_AT_ONCE = 1024  # of the weight that is packed, which bounds what is unpacked for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """number = (value of the code * scale + minimum) * row's factor. Plain data: it names kernels.

    block: columns that a word of high bits serves; group: columns that share a scale, a multiple of it, 0: all.
    values: by code; none: the code is an int8. scale, minimum: keys of SCALE_BYTES; "" for no minimum. shift: a minimum of format "uint8"
    is a zero point z and means (shift - z) * scale. "six": scales and minimums of six bits, in pairs of twelve: [group, lane] bytes with
    the low eight in `scales`, [group / 2, lane] bytes with the rest in `minimums`; the minimum counts down. per_super: groups of a
    super-group.
    """

    block: int
    group: int
    low: int = 4
    high: int = 0
    values: tuple[float, ...] = ()
    scale: str
    minimum: str = ""
    shift: float = 0.0
    per_super: int = 0
    has_row_factors: bool = False

    @property
    def num_supers(self) -> int:
        return 0 if not self.per_super else 2 if self.scale == "six" else 1

    def step(self) -> int:
        """What the columns must be a multiple of."""
        return max(self.block, self.group) * max(1, self.per_super)

    def groups(self, columns: int) -> int:
        return columns // self.group if self.group else 1


def _whole(bits: int, offset: float = 0.0) -> tuple[float, ...]:
    return tuple(code - offset for code in range(2**bits))


_SMALL = {"block": 32, "group": 32, "scale": "float16"}
_BLOCKS = {
    "Q4_0": Recipe(**_SMALL, values=_whole(4, 8)),
    "Q4_1": Recipe(**_SMALL, values=_whole(4), minimum="float16"),
    "Q5_0": Recipe(**_SMALL, high=1, values=_whole(5, 16)),
    "Q5_1": Recipe(**_SMALL, high=1, values=_whole(5), minimum="float16"),
    "Q8_0": Recipe(**_SMALL, low=8),
    "Q4_K": Recipe(block=32, group=32, values=_whole(4), scale="six", minimum="six", per_super=8),
    "Q5_K": Recipe(block=32, group=32, high=1, values=_whole(5), scale="six", minimum="six", per_super=8),
    "Q6_K": Recipe(block=16, group=16, high=2, values=_whole(6, 32), scale="int8", per_super=16),
    "IQ4_NL": Recipe(**_SMALL, values=tuple(float(value) for value in gguf_blocks.IQ4)),
    "IQ4_XS": Recipe(block=32, group=32, values=tuple(float(value) for value in gguf_blocks.IQ4), scale="int8", per_super=8),
    "MXFP4": Recipe(block=32, group=32, values=tuple(float(value) for value in gguf_blocks.MXFP4), scale="half_power"),
}


def recipe(layout: Layout) -> Recipe | None:
    """How a layout is kept in panels; None where it is not."""
    if isinstance(layout, Blocks):
        return _BLOCKS.get(layout.number_format)
    if not isinstance(layout, Coded) or layout.has_column_groups or layout.shares_scale_rows or layout.nested:
        return None
    if layout.scale not in SCALE_BYTES or layout.bits not in (4, 5, 6, 8) or (layout.has_zeros and layout.has_minimums):
        return None
    bits, kind = weights.CODES[layout.code]
    low, high = (8, 0) if bits == 8 else (4, bits - 4)
    block = 16 if high == 2 or layout.group % 32 else 32
    if layout.group % block or isinstance(kind, torch.dtype):
        return None
    shift, values = 0.0, ()
    if isinstance(kind, tuple):
        values = tuple(float(value) for value in kind)
    elif kind == "unsigned" and (layout.has_zeros or bits == 8):
        shift = 2.0 ** (bits - 1)  # centred codes: sums do not cancel
    if not isinstance(kind, tuple) and bits < 8:
        values = _whole(bits, 2.0 ** (bits - 1) if kind == "offset" else shift)
    if kind == "unsigned" and bits == 8 and not layout.has_zeros:
        return None
    minimum = layout.scale if layout.has_minimums else "uint8" if layout.has_zeros else ""
    return Recipe(
        block=block,
        group=layout.group,
        low=low,
        high=high,
        values=values,
        scale=layout.scale,
        minimum=minimum,
        shift=shift,
        has_row_factors=layout.has_row_scales,
    )


def pack(layout: Layout, weight: Tensors, rows: int, columns: int) -> Tensors:
    """The planes of a weight, those that its recipe has; in memory of their own on huge pages, or meta tensors of meta ones."""
    found = recipe(layout)
    assert found is not None
    panels = -(-rows // LANES)
    sizes = plane_bytes(found, columns)
    if weight[0].is_meta:
        return tuple(torch.empty(panels, size, dtype=torch.uint8, device="meta") for size in sizes.values())
    planes = {name: memory.allocate(panels * size).view(panels, size) for name, size in sizes.items()}
    for start in range(0, rows, _ROWS_AT_ONCE):
        count = min(_ROWS_AT_ONCE, rows - start)
        part = weights.select_rows(layout, weight, slice(start, start + count))
        first, last = start // LANES, -(-(start + count) // LANES)
        for name, values in _planes(found, _parts(layout, part, columns), columns):
            planes[name][first:last].copy_(values.reshape(last - first, -1))
    return tuple(planes.values())


def plane_bytes(recipe: Recipe, columns: int) -> dict[str, int]:
    """Of one panel in each plane that there is."""
    groups = recipe.groups(columns)
    scale = 1 if recipe.scale == "six" else SCALE_BYTES[recipe.scale]
    minimum = SCALE_BYTES.get(recipe.minimum, 0)
    sizes = {
        "low": columns * LANES * recipe.low // 8,
        "high": columns * LANES * recipe.high // 8,
        "scales": groups * LANES * scale,
        "minimums": groups // 2 * LANES if recipe.minimum == "six" else groups * LANES * minimum,
        "supers": groups // recipe.per_super * recipe.num_supers * LANES * 2 if recipe.per_super else 0,
        "rows": LANES * 4 if recipe.has_row_factors else 0,
    }
    return {name: size for name, size in sizes.items() if size}


@dataclass(slots=True)
class _Parts:
    """What rows of a weight are made of: codes uint8 [rows, columns]; the rest as uint8 [rows, groups, bytes of one], or none."""

    codes: torch.Tensor
    scales: torch.Tensor
    minimums: torch.Tensor | None = None
    supers: torch.Tensor | None = None
    row_factors: torch.Tensor | None = None


def _parts(layout: Layout, weight: Tensors, columns: int) -> _Parts:
    if isinstance(layout, Blocks):
        elements, size_bytes = gguf_blocks.SIZES[layout.number_format]
        return _of_blocks(layout.number_format, weight[0].reshape(len(weight[0]), columns // elements, size_bytes))
    assert isinstance(layout, Coded)
    named = dict(zip(layout.names, weight, strict=True))
    codes = weights.unpack_codes(named["codes"], layout.bits, columns)
    if layout.bits == 8 and weights.CODES[layout.code][1] != "signed":
        codes = codes ^ 128
    below, rows = named.get("zeros", named.get("minimums")), named.get("row_scales")
    minimums, factors = None if below is None else _bytes(below), None if rows is None else _bytes(rows[:, None])
    return _Parts(codes, _bytes(named["scales"]), minimums, row_factors=factors)


def _bytes(values: torch.Tensor) -> torch.Tensor:
    """[rows, groups] as uint8 [rows, groups, bytes of one]."""
    return values.contiguous()[..., None].view(torch.uint8)  # a column's own stride may be anything, and view() looks at it


def _of_blocks(number_format: str, blocks: torch.Tensor) -> _Parts:
    """blocks: uint8 [rows, blocks, bytes]."""
    rows = len(blocks)
    if number_format in ("Q4_K", "Q5_K"):
        return _of_k(blocks, number_format == "Q5_K")
    if number_format == "Q6_K":
        low = _nibbles(blocks[:, :, :128].unflatten(2, (2, 64))).view(*blocks.shape[:2], 2, 4, 32)
        high = (blocks[:, :, 128:192].unflatten(2, (2, 1, 32)) >> _shifts(0, 2, 4, 6)) & 3
        codes = (low | (high << 4)).reshape(rows, -1)
        return _Parts(codes, blocks[:, :, 192:208].reshape(rows, -1, 1), supers=blocks[:, :, 208:210])
    if number_format == "IQ4_XS":
        low = ((blocks[:, :, 4:8, None] >> torch.tensor([0, 4], dtype=torch.uint8)) & 15).flatten(2)
        high = ((blocks[:, :, 2:4, None] >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8)) & 3).flatten(2)
        scales = (low | (high << 4)) - 32
        codes = _nibbles(blocks[:, :, 8:].unflatten(2, (8, 16)))
        return _Parts(codes.reshape(rows, -1), scales.reshape(rows, -1, 1), supers=blocks[:, :, :2])
    if number_format == "Q8_0":
        return _Parts(blocks[:, :, 2:].reshape(rows, -1), blocks[:, :, :2])
    if number_format == "MXFP4":
        return _Parts(_nibbles(blocks[:, :, 1:]).reshape(rows, -1), blocks[:, :, :1])
    minimums = blocks[:, :, 2:4] if number_format in ("Q4_1", "Q5_1") else None
    at = 2 if minimums is None else 4
    if number_format in ("Q5_0", "Q5_1"):
        fifth = ((blocks[:, :, at : at + 4, None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten(2)
        codes = _nibbles(blocks[:, :, at + 4 :]) | (fifth << 4)
    else:
        codes = _nibbles(blocks[:, :, at:])
    return _Parts(codes.reshape(rows, -1), blocks[:, :, :2], minimums)


def _of_k(blocks: torch.Tensor, has_fifth: bool) -> _Parts:
    rows = len(blocks)
    codes = _nibbles(blocks[:, :, 48 if has_fifth else 16 :].unflatten(2, (4, 32))).unflatten(3, (2, 32)).flatten(2, 3)
    if has_fifth:
        codes = codes | (((blocks[:, :, None, 16:48] >> _shifts(*range(8))) & 1) << 4)
    first, second, third = blocks[:, :, 4:8], blocks[:, :, 8:12], blocks[:, :, 12:16]
    scales = torch.cat([first & 63, (third & 15) | ((first >> 6) << 4)], 2)
    minimums = torch.cat([second & 63, (third >> 4) | ((second >> 6) << 4)], 2)
    low = scales | (minimums << 6)
    rest = (minimums >> 2).unflatten(2, (4, 2))
    rest = rest[..., 0] | (rest[..., 1] << 4)
    supers = blocks[:, :, :4].reshape(rows, -1, 2)
    return _Parts(codes.reshape(rows, -1), low.reshape(rows, -1, 1), rest.reshape(rows, -1, 1), supers)


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [..., n] to [..., 2 n]: the low halves of all bytes, then the high halves."""
    return torch.cat([packed & 15, packed >> 4], -1)


def _shifts(*places: int) -> torch.Tensor:
    return torch.tensor(places, dtype=torch.uint8)[:, None]


def _planes(recipe: Recipe, parts: _Parts, columns: int) -> Iterator[tuple[str, torch.Tensor]]:
    """The planes of rows that begin a panel; the last panel is filled with zeros."""
    codes = _in_lanes(parts.codes)  # [panels, lane, columns]
    panels = len(codes)
    if recipe.low == 8:
        if features.looks_up_bytes():
            yield "low", codes.view(panels, 4, 4, columns // 4, 2, 2).permute(0, 3, 1, 4, 2, 5)
        else:
            yield "low", codes.view(panels, LANES, columns // 2, 2).permute(0, 2, 3, 1)
    else:
        runs = (codes & 15).view(panels, LANES, columns // 8, 4, 2).permute(0, 2, 1, 4, 3)
        yield "low", runs[..., 0::2] | (runs[..., 1::2] << 4)
    if recipe.high:
        each = 8 // recipe.high
        shifts = torch.arange(0, 8, recipe.high, dtype=torch.uint8)
        ones = (codes >> 4).view(panels, LANES, columns // recipe.block, 2, each, 2).permute(0, 2, 1, 5, 3, 4)
        yield "high", (ones << shifts).sum(-1, dtype=torch.uint8)
    yield "scales", _in_lanes(parts.scales.flatten(1)).view(panels, LANES, -1, parts.scales.shape[2]).permute(0, 2, 1, 3)
    if parts.minimums is not None:
        yield "minimums", _in_lanes(parts.minimums.flatten(1)).view(panels, LANES, -1, parts.minimums.shape[2]).permute(0, 2, 1, 3)
    if parts.supers is not None:
        yield "supers", _in_lanes(parts.supers.flatten(1)).view(panels, LANES, -1, 2).permute(0, 2, 1, 3)
    if parts.row_factors is not None:
        yield "rows", _in_lanes(parts.row_factors.flatten(1)).reshape(panels, -1)


def _in_lanes(values: torch.Tensor) -> torch.Tensor:
    """uint8 [rows, n] as [panels, LANES, n]."""
    rows = len(values)
    if missing := -rows % LANES:
        values = torch.cat([values, torch.zeros(missing, values.shape[1], dtype=values.dtype)])
    return values.reshape(-1, LANES, values.shape[1])
