"""Attention: heads that rotate, store and attend through a back end; and the projections around them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from octavo.attention.batch import Batch
from octavo.attention.interface import Facts
from octavo.config.cache_formats import FORMATS, CacheFormat
from octavo.device.arena import Arena
from octavo.errors import CheckpointError
from octavo.kvcache.specs import StateSpec
from octavo.layers.choices import Choices
from octavo.layers.linear import FusedLinear, Linear, Part
from octavo.layers.norm import RMSNorm
from octavo.layers.rope import Rope
from octavo.layers.stored import Layer, Stored
from octavo.parallel.cut import Group, even, shared
from octavo.quant.format import Scheme


class Attention(Layer):
    """The part that keeps state. Its pages belong to the worker, which binds them; its arithmetic belongs to the back end.

    window: 0 = none, else a token sees itself and the window-1 before it. scales: of keys and of values, for the formats that have such;
    the checkpoint may know them (`k_scale`, `v_scale`), whatever the cache is kept in.
    """

    def __init__(self, num_heads: int, num_kv_heads: int, head_dim: int, scale: float, rope: Rope, window: int = 0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.scale = scale
        self.window = window
        self.group = 0
        self._rope = (rope,)  # in a tuple: the table is the model's, not this layer's
        self._cache: Any = None
        self.cache_format: CacheFormat = FORMATS["bfloat16"]

    def shard(self, group: Group) -> None:
        self.num_heads = even(self.num_heads, group, "attention heads")
        _, self.num_kv_heads = shared(self.num_kv_heads, group, "kv heads")

    def keep_in(self, cache_format: CacheFormat) -> None:
        """Choose the number format of this layer's keys and values; before `finish`."""
        self.cache_format = cache_format

    def create(self, scheme: Scheme, device: torch.device, path: str) -> None:
        self._path = path.rpartition(".")[0]
        self.scales = nn.Parameter(torch.empty(2, dtype=torch.float32, device=device), requires_grad=False)

    def stored(self, path: str) -> Iterator[Stored]:
        parent = path.rpartition(".")[0]
        for index, name in enumerate(("k_scale", "v_scale")):
            yield Stored(f"{parent}.{name}", (1,), self.scales[index : index + 1], default=1.0, is_flat=True)

    def spec(self) -> StateSpec:
        """What the cache keeps of this layer."""
        size = self.cache_format.bytes_per_token(self.num_kv_heads, self.head_dim)
        return StateSpec(kind="sliding" if self.window else "full", bytes_per_token=size, window=self.window)

    def finish(self, choices: Choices) -> None:
        facts = Facts(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=choices.dtype,
            cache_format=self.cache_format,
            block_size=choices.block_size,
            scale=self.scale,
            window=self.window,
            rotary_dim=self._rope[0].dim,
        )
        self.backend = choices.take_attention(facts)
        if not self.scales.is_meta and not (self.scales.isfinite().all() and (self.scales > 0).all()):
            key, value = self.scales.tolist()
            fact = f"{self._path}: k_scale {key:g} or v_scale {value:g} is not a positive number"
            raise CheckpointError(fact, "the checkpoint is damaged, or was calibrated wrongly")
        if choices.dry:
            pages = torch.empty(1, self.backend.layout().page_bytes, dtype=torch.uint8, device="meta")
            self._cache = self.backend.bind(pages, self.scales)

    def bind(self, pages: torch.Tensor, group: int, block_size: int) -> None:
        """Give the layer its pages, uint8 [num_blocks, at least page_bytes], and the number of its group."""
        if block_size != self.backend.facts.block_size:
            raise ValueError(f"blocks of {block_size} tokens, but the back end was chosen for {self.backend.facts.block_size}")
        self.group = group
        self._cache = self.backend.bind(pages, self.scales)

    def plan(self, batch: Batch, arena: Arena) -> None:
        """Once a group and step, before its first layer: what all layers of the group share."""
        self.backend.plan(batch, self.group, arena)

    def forward(self, out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Batch, arena: Arena) -> None:
        """out [tokens, heads, head_dim]; query alike, rotated in place; key, value [tokens, kv_heads, head_dim], which go to the cache."""
        self.backend.store(query, key, value, self._rope[0].cos_sin, batch, self.group, self._cache)
        self.backend.attend(out, query, batch, self.group, self._cache, arena)


class SelfAttention(nn.Module):
    """One fused projection to queries, keys and values, attention over heads, one projection back.

    bias: on the first projection; output_bias: on the second. head_norm: norms each head of query and key before they rotate.
    """

    def __init__(
        self,
        config: Any,
        rope: Rope,
        window: int,
        *,
        bias: bool = False,
        output_bias: bool = False,
        scale: float | None = None,
        head_norm: tuple[RMSNorm, RMSNorm] | None = None,
    ) -> None:
        super().__init__()
        heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.qkv = FusedLinear(
            config.hidden_size,
            parts=(
                Part("q_proj", heads * dim, heads, "attention heads"),
                Part("k_proj", kv_heads * dim, kv_heads, "kv heads", is_shared=True),
                Part("v_proj", kv_heads * dim, kv_heads, "kv heads", is_shared=True),
            ),
            bias=bias,
        )
        self.o_proj = Linear(heads * dim, config.hidden_size, bias=output_bias, cut_inputs="attention heads", num_cuttable=heads)
        self.attention = Attention(heads, kv_heads, dim, dim**-0.5 if scale is None else scale, rope, window)
        if head_norm is not None:
            self.q_norm, self.k_norm = head_norm
        self._norms_heads = head_norm is not None

    def forward(self, out: torch.Tensor, x: torch.Tensor, batch: Batch, arena: Arena) -> None:
        """out, x [tokens, hidden]; out may be x."""
        attention = self.attention
        heads, kv_heads, dim = attention.num_heads, attention.num_kv_heads, attention.head_dim
        with arena.scope():
            qkv = arena.empty(batch.num_tokens, heads + 2 * kv_heads, dim, dtype=x.dtype)
            self.qkv(qkv.flatten(1), x)
            query, key, value = torch.split(qkv, [heads, kv_heads, kv_heads], dim=1)
            if self._norms_heads:
                self.q_norm(query, query)
                self.k_norm(key, key)
            attended = arena.empty(batch.num_tokens, heads, dim, dtype=x.dtype)
            attention(attended, query, key, value, batch, arena)
            self.o_proj(out, attended.flatten(1))
