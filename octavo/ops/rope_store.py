"""Rope and store: query and key are turned by their position, and key and value go to their slots in the pages.

Su et al., RoFormer, 2021. The angles come from a table, so that every scaling of rope is somebody else's matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from octavo.config.cache_formats import FORMATS
from octavo.ops.pages import Layout, plain_format, scales_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Shapes and dtypes of one layer. interleaved: dimensions 2i and 2i+1 are a pair, else i and i + rotary_dim / 2."""

    num_heads: int
    layout: Layout
    dtype: torch.dtype
    rotary_dim: int  # 0: nothing is turned
    interleaved: bool = False


def rotate(x: torch.Tensor, cos_sin: torch.Tensor, facts: Facts) -> torch.Tensor:
    """x [tokens, heads, head_dim] turned by cos_sin [tokens, rotary_dim], in float32, in x's dtype."""
    half = facts.rotary_dim // 2
    cos, sin = cos_sin[:, None, :half], cos_sin[:, None, half:]
    turning = x[..., : facts.rotary_dim].to(torch.float32)
    if facts.interleaved:
        first, second = turning[..., 0::2], turning[..., 1::2]
        turned = torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
    else:
        first, second = turning[..., :half], turning[..., half:]
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return torch.cat((turned.to(x.dtype), x[..., facts.rotary_dim :]), -1)


class Reference:
    """query [tokens, num_heads, head_dim] is turned in place; key and value [tokens, num_kv_heads, head_dim] go to the pages.

    The three may be strided views (the last dimension contiguous); key may be changed. cos_sin float32 [max_position, rotary_dim], cosines
    then sines, or None where rotary_dim is 0. positions int32 [tokens]. pages uint8 [num_blocks, page_bytes]. slots int64 [tokens]; a
    token whose slot is negative is not stored. scales float32 [2]: the layer's, of keys and of values; ones where there are none.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        return None

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cos_sin: torch.Tensor | None,
        positions: torch.Tensor,
        pages: torch.Tensor,
        slots: torch.Tensor,
        scales: torch.Tensor | None = None,
    ) -> None:
        if self.facts.rotary_dim:
            assert cos_sin is not None
            angles = cos_sin[positions.long()]
            query.copy_(rotate(query, angles, self.facts))
            key = rotate(key, angles, self.facts)
        kept = slots >= 0
        self.facts.layout.write(pages, slots[kept], key[kept], value[kept], scales_of(scales))


@dataclass(frozen=True, slots=True)
class Case:
    facts: Facts
    tokens: int

    def __str__(self) -> str:
        f, page = self.facts, self.facts.layout
        pairs = "interleaved" if f.interleaved else "half"
        return (
            f"{self.tokens}-{f.num_heads}/{page.num_kv_heads}x{page.head_dim}-rotary{f.rotary_dim}-{pairs}"
            f"-block{page.block_size}-{str(f.dtype)[6:]}-{page.format.name}"
        )

    def fused(self) -> torch.Tensor:
        """[tokens, (num_heads + 2 * num_kv_heads) * head_dim]: query, key and value side by side."""
        page = self.facts.layout
        width = (self.facts.num_heads + 2 * page.num_kv_heads) * page.head_dim
        return torch.randn(self.tokens, width, generator=torch.Generator().manual_seed(4)).to(self.facts.dtype)

    def split(self, fused: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """query, key and value as views of fused."""
        page = self.facts.layout
        heads = fused.view(len(fused), -1, page.head_dim)
        query, key, value = torch.split(heads, [self.facts.num_heads, page.num_kv_heads, page.num_kv_heads], 1)
        return query, key, value

    def cos_sin(self) -> torch.Tensor | None:
        """[64, rotary_dim] of some positions, so that a wrong row of the table is a wrong answer."""
        if not self.facts.rotary_dim:
            return None
        angles = torch.outer(torch.arange(64.0), 1e4 ** -torch.linspace(0, 1, self.facts.rotary_dim // 2))
        return torch.cat((angles.cos(), angles.sin()), 1)

    def positions(self) -> torch.Tensor:
        return (torch.randperm(max(64, self.tokens), generator=torch.Generator().manual_seed(5))[: self.tokens] % 64).to(torch.int32)

    def slots(self) -> torch.Tensor:
        """Scattered over `num_blocks` pages, the second token not stored."""
        slots = torch.randperm(self.num_blocks * self.facts.layout.block_size, generator=torch.Generator().manual_seed(6))[: self.tokens]
        if self.tokens > 1:
            slots[1] = -1
        return slots

    def scales(self) -> torch.Tensor:
        """Of the layer; numbers that are no powers of 2."""
        return torch.tensor([0.0078, 0.011])

    @property
    def num_blocks(self) -> int:
        return self.tokens // self.facts.layout.block_size + 2


def _case(tokens: int, heads: tuple[int, int], dim: int, rotary: int, dtype: torch.dtype, cache: torch.dtype | str, **more: object) -> Case:
    block, interleaved = int(more.get("block", 16)), bool(more.get("interleaved", False))  # type: ignore[call-overload]
    kind = more.get("kind", "tiles")
    kept = FORMATS[cache] if isinstance(cache, str) else plain_format(cache)
    layout = Layout(kind=kind, num_kv_heads=heads[1], head_dim=dim, block_size=block, format=kept)  # type: ignore[arg-type]
    return Case(Facts(num_heads=heads[0], layout=layout, dtype=dtype, rotary_dim=rotary, interleaved=interleaved), tokens)


def cases() -> Iterator[Case]:
    """Each dtype and cache, whole and partial rotation, both pairings, several block sizes, and pages that only the reference writes."""
    bf16, fp32 = torch.bfloat16, torch.float32
    for dtype, cache in ((fp32, fp32), (bf16, bf16), (fp32, bf16), (bf16, fp32)):
        yield _case(37, (9, 3), 64, 64, dtype, cache)
        yield _case(1, (4, 1), 256, 256, dtype, cache, block=32)
        yield _case(9, (2, 2), 80, 32, dtype, cache, block=48)
        yield _case(5, (3, 1), 96, 96, dtype, cache, interleaved=True)
        yield _case(3, (14, 2), 64, 0, dtype, cache)
        yield _case(4, (2, 1), 32, 6, dtype, cache)
    yield _case(3, (2, 1), 32, 32, torch.float16, torch.float16)
    yield _case(7, (2, 1), 20, 20, bf16, bf16, kind="plain", block=5)
    for name in (each.name for each in FORMATS.values() if not each.is_plain):
        for dtype in (fp32, bf16):
            yield _case(37, (9, 3), 64, 64, dtype, name)
            yield _case(300, (2, 2), 80, 0, dtype, name, block=48)
    yield _case(9, (2, 1), 16, 16, fp32, "int4_per_token_head")
    yield _case(7, (2, 1), 20, 20, bf16, "int4_per_token_head", kind="plain", block=5)
