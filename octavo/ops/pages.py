"""Pages: how the keys and values of one layer's block lie in memory. Not an op; the ops that store and attend share it.

A page holds the keys of all heads, then the values of all heads. Two layouts:

plain   keys and values [block_size, heads, head_dim]; any block size, any dtype
tiles   16 keys side by side, so that one vector of them meets one number of a query, and values in the order in which a row of
        probabilities meets them; `pair` numbers that one instruction consumes together lie together (2 for 16-bit formats, else 1):
        keys   [heads, block_size / 16, head_dim / pair, 16, pair]
        values [heads, block_size / pair, head_dim, pair]
"""

from dataclasses import dataclass
from typing import Literal

import torch

TILE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The shape of a page."""

    kind: Literal["plain", "tiles"]
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        if self.kind == "tiles" and (self.block_size % TILE or self.head_dim % self.pair):
            raise ValueError(
                f"a page of tiles holds a multiple of {TILE} tokens of an even dimension, not {self.block_size} x {self.head_dim}"
            )

    @property
    def pair(self) -> int:
        return max(1, 4 // self.dtype.itemsize) if self.kind == "tiles" else 1

    @property
    def part_bytes(self) -> int:
        """Bytes of the keys, and of the values, of a page."""
        return self.block_size * self.num_kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def page_bytes(self) -> int:
        return 2 * self.part_bytes

    def keys(self, pages: torch.Tensor) -> torch.Tensor:
        """A view [num_blocks, ...] of the keys in pages uint8 [num_blocks, at least page_bytes]."""
        part = pages[:, : self.part_bytes].view(self.dtype)
        if self.kind == "plain":
            return part.view(len(pages), self.block_size, self.num_kv_heads, self.head_dim)
        return part.view(len(pages), self.num_kv_heads, self.block_size // TILE, self.head_dim // self.pair, TILE, self.pair)

    def values(self, pages: torch.Tensor) -> torch.Tensor:
        """A view [num_blocks, ...] of the values."""
        part = pages[:, self.part_bytes : self.page_bytes].view(self.dtype)
        if self.kind == "plain":
            return part.view(len(pages), self.block_size, self.num_kv_heads, self.head_dim)
        return part.view(len(pages), self.num_kv_heads, self.block_size // self.pair, self.head_dim, self.pair)

    def write(self, pages: torch.Tensor, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Put key and value [tokens, heads, head_dim] at slots int64 [tokens], each block * block_size + offset."""
        block, at = slots // self.block_size, slots % self.block_size
        key, value = key.to(self.dtype), value.to(self.dtype)
        if self.kind == "plain":
            self.keys(pages)[block, at] = key
            self.values(pages)[block, at] = value
        else:
            self.keys(pages)[block, :, at // TILE, :, at % TILE] = key.reshape(*key.shape[:2], -1, self.pair)
            self.values(pages)[block, :, at // self.pair, :, at % self.pair] = value

    def read(self, pages: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [tokens, heads, head_dim] at slots int64 [tokens]."""
        block, at = slots // self.block_size, slots % self.block_size
        if self.kind == "plain":
            return self.keys(pages)[block, at], self.values(pages)[block, at]
        key = self.keys(pages)[block, :, at // TILE, :, at % TILE].flatten(2)
        return key, self.values(pages)[block, :, at // self.pair, :, at % self.pair]
