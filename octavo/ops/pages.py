"""Pages: how the keys and values of one layer's block lie in memory. Not an op; the ops that store and attend share it.

A page holds the keys of all heads, then the values of all heads. Two layouts:

plain   keys and values [block_size, heads, head_dim]; any block size, any format
tiles   16 keys side by side, so that one vector of them meets one number of a query, and values in the order in which a row of
        probabilities meets them; `pair` numbers that one instruction consumes together lie together (2 for 16-bit formats, else 1):
        keys   [heads, block_size / 16, head_dim / pair, 16, pair]
        values [heads, block_size / pair, head_dim, pair]

Coded formats (octavo/config/cache_formats.py) have codes in place of numbers, and behind the codes of the keys, and of the values, the
side bytes of each vector. Pages of tiles, whose kernels decode a tile before they multiply with it, hold them so:

        keys   [heads, block_size / 16, head_dim / 2, 16] pairs of codes, a byte each or half a byte, the even dimension in the low half
        values [heads, block_size] rows of codes
        side   [heads, block_size, side_bytes]; those of keys in groups [heads, block_size / 16, head_dim / 16, 16]

A row of codes of 4 bits holds number i in the low half of byte i, and number i + head_dim / 2 in its high half.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from octavo.config.cache_formats import FORMATS, CacheFormat
from octavo.ops.cache_codes import decode, encode

TILE = 16

Scales = tuple[float, float]  # of a layer's keys and of its values
ONES: Scales = (1.0, 1.0)


def plain_format(dtype: torch.dtype) -> CacheFormat:
    """The format that keeps numbers of this dtype as they are."""
    return FORMATS[str(dtype).removeprefix("torch.")]


def scales_of(scales: torch.Tensor | None) -> Scales:
    """A layer's scales as two numbers; ones where there are none."""
    if scales is None:
        return ONES
    key, value = scales.tolist()
    return key, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The shape of a page."""

    kind: Literal["plain", "tiles"]
    num_kv_heads: int
    head_dim: int
    block_size: int
    format: CacheFormat

    def __post_init__(self) -> None:
        if self.kind == "tiles" and (self.block_size % TILE or self.head_dim % self.pair):
            raise ValueError(
                f"a page of tiles holds a multiple of {TILE} tokens of an even dimension, not {self.block_size} x {self.head_dim}"
            )
        if reason := self.format.refuses(self.head_dim):
            raise ValueError(reason)

    @property
    def dtype(self) -> torch.dtype:
        """Of the numbers that stand in the page; bytes of codes."""
        dtype: torch.dtype = getattr(torch, self.format.code) if self.format.is_plain else torch.uint8
        return dtype

    @property
    def pair(self) -> int:
        return max(1, 4 // self.dtype.itemsize if self.format.is_plain else 2) if self.kind == "tiles" else 1

    @property
    def codes_bytes(self) -> int:
        """Bytes of the codes of the keys, and of the values, of a page; behind them lie their side bytes."""
        return self.block_size * self.num_kv_heads * self.format.code_bytes(self.head_dim)

    @property
    def part_bytes(self) -> int:
        """Bytes of the keys, and of the values, of a page."""
        return self.codes_bytes + self.block_size * self.num_kv_heads * self.format.side_bytes(self.head_dim)

    @property
    def page_bytes(self) -> int:
        return 2 * self.part_bytes

    def keys(self, pages: torch.Tensor) -> torch.Tensor:
        """A view [num_blocks, ...] of the keys, or their codes, in pages uint8 [num_blocks, at least page_bytes]."""
        part = pages[:, : self.codes_bytes].view(self.dtype)
        if self.kind == "plain":
            return part.view(len(pages), self.block_size, self.num_kv_heads, -1)
        unit = self.pair if self.format.bits >= 8 else 1
        return part.view(len(pages), self.num_kv_heads, self.block_size // TILE, self.head_dim // self.pair, TILE, unit)

    def values(self, pages: torch.Tensor) -> torch.Tensor:
        """A view [num_blocks, ...] of the values, or their codes."""
        part = pages[:, self.part_bytes : self.part_bytes + self.codes_bytes].view(self.dtype)
        if self.kind == "plain":
            return part.view(len(pages), self.block_size, self.num_kv_heads, -1)
        if not self.format.is_plain:
            return part.view(len(pages), self.num_kv_heads, self.block_size, -1)
        return part.view(len(pages), self.num_kv_heads, self.block_size // self.pair, self.head_dim, self.pair)

    def sides(self, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Views [num_blocks, ...] of the side bytes of the keys and of the values."""
        starts = (self.codes_bytes, self.part_bytes + self.codes_bytes)
        keys, values = (pages[:, start : start + self.part_bytes - self.codes_bytes] for start in starts)
        if self.kind == "plain":
            shape = (len(pages), self.block_size, self.num_kv_heads, self.format.side_bytes(self.head_dim))
            return keys.view(shape), values.view(shape)
        shape = (len(pages), self.num_kv_heads, self.block_size, self.format.side_bytes(self.head_dim))
        if self.format.scale == "group":
            tiles = keys.view(len(pages), self.num_kv_heads, self.block_size // TILE, -1, TILE)
            return tiles, values.view(shape)
        return keys.view(shape), values.view(shape)

    def write(self, pages: torch.Tensor, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scales: Scales = ONES) -> None:
        """Put key and value [tokens, heads, head_dim] at slots int64 [tokens], each block * block_size + offset."""
        block, at = slots // self.block_size, slots % self.block_size
        if not self.format.is_plain:
            self._write_codes(pages, block, at, key, value, scales)
            return
        key, value = key.to(self.dtype), value.to(self.dtype)
        if self.kind == "plain":
            self.keys(pages)[block, at] = key
            self.values(pages)[block, at] = value
        else:
            self.keys(pages)[block, :, at // TILE, :, at % TILE] = key.reshape(*key.shape[:2], -1, self.pair)
            self.values(pages)[block, :, at // self.pair, :, at % self.pair] = value

    def read(self, pages: torch.Tensor, slots: torch.Tensor, scales: Scales = ONES) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [tokens, heads, head_dim] at slots int64 [tokens]; of a coded format in float32."""
        block, at = slots // self.block_size, slots % self.block_size
        if not self.format.is_plain:
            return self._read_codes(pages, block, at, scales)
        if self.kind == "plain":
            return self.keys(pages)[block, at], self.values(pages)[block, at]
        key = self.keys(pages)[block, :, at // TILE, :, at % TILE].flatten(2)
        return key, self.values(pages)[block, :, at // self.pair, :, at % self.pair]

    def _write_codes(
        self, pages: torch.Tensor, block: torch.Tensor, at: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scales: Scales
    ) -> None:
        key_sides, value_sides = self.sides(pages)
        codes, side = encode(self.format, key, scales[0])
        value_codes, value_side = encode(self.format, value, scales[1])
        if self.kind == "plain":
            self.keys(pages)[block, at], key_sides[block, at] = self._row(codes), side
            self.values(pages)[block, at], value_sides[block, at] = self._row(value_codes), value_side
            return
        pairs = codes.unflatten(-1, (-1, 2))
        if self.format.bits == 4:
            pairs = pairs[..., :1] | pairs[..., 1:] << 4
        self.keys(pages)[block, :, at // TILE, :, at % TILE] = pairs
        self.values(pages)[block, :, at] = self._row(value_codes)
        value_sides[block, :, at] = value_side
        if self.format.scale == "group":
            key_sides[block, :, at // TILE, :, at % TILE] = side
        else:
            key_sides[block, :, at] = side

    def _read_codes(self, pages: torch.Tensor, block: torch.Tensor, at: torch.Tensor, scales: Scales) -> tuple[torch.Tensor, torch.Tensor]:
        key_sides, value_sides = self.sides(pages)
        if self.kind == "plain":
            codes, value_codes = (self._codes(rows[block, at]) for rows in (self.keys(pages), self.values(pages)))
            side, value_side = key_sides[block, at], value_sides[block, at]
        else:
            codes = self.keys(pages)[block, :, at // TILE, :, at % TILE]
            codes = (torch.cat((codes & 15, codes >> 4), -1) if self.format.bits == 4 else codes).flatten(2)
            value_codes = self._codes(self.values(pages)[block, :, at])
            is_tiled = self.format.scale == "group"
            side = key_sides[block, :, at // TILE, :, at % TILE] if is_tiled else key_sides[block, :, at]
            value_side = value_sides[block, :, at]
        return decode(self.format, codes, side, scales[0]), decode(self.format, value_codes, value_side, scales[1])

    def _row(self, codes: torch.Tensor) -> torch.Tensor:
        """Codes [..., head_dim], one a byte, as they lie in a row."""
        half = self.head_dim // 2
        return codes[..., :half] | codes[..., half:] << 4 if self.format.bits == 4 else codes

    def _codes(self, rows: torch.Tensor) -> torch.Tensor:
        """The other way round."""
        return torch.cat((rows & 15, rows >> 4), -1) if self.format.bits == 4 else rows
