"""Attention back ends: what one is told, what it must do, and how one is chosen.

A back end is a file of this room with a class `Backend`. Users name it by its file (`--attention-backend CPU_ATTN`).
"""

import difflib
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from octavo import plugins
from octavo.attention.batch import Batch
from octavo.attention.order import ORDER
from octavo.config.cache_formats import CacheFormat
from octavo.device.arena import Arena
from octavo.errors import ConfigError
from octavo.ops.op import Choice
from octavo.ops.pages import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is known of an attention layer when the model is finished."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype  # of query, key, value and out
    cache_format: CacheFormat  # of the pages
    block_size: int
    scale: float  # score = scale * q.k
    window: int = 0  # a token sees itself and the window - 1 before it; 0 = all before it
    softcap: float = 0.0  # score = softcap * tanh(score / softcap); 0 = none
    has_sinks: bool = False  # one more logit a query head in the denominator of the softmax
    rotary_dim: int = 0  # leading dimensions that rope turns; 0 = none
    interleaved: bool = False  # rope's pairs are (2i, 2i + 1), else (i, i + rotary_dim / 2)


@dataclass(frozen=True, slots=True)
class Cache:
    """One layer's pages, as its back end's `bind` took them. Opaque to everybody else."""

    pages: torch.Tensor  # uint8 [num_blocks, at least page_bytes]
    scales: torch.Tensor | None  # float32 [2], of keys and of values, where the format has a scale of the layer


class Backend(Protocol):
    """How a page is laid out, stored into and attended over. One object a layer; layers of a group share the plan of a step.

    With dry=True nothing is computed and tensors may be on the meta device; what is taken from the arena is the same.
    """

    block_multiple: ClassVar[int]  # block sizes must be multiples of this
    facts: Facts
    choices: dict[str, str]  # op -> implementation, where the back end is made of ops

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        """Why it cannot do this, or None."""
        ...

    def __init__(self, facts: Facts, dry: bool = False) -> None: ...

    def layout(self) -> Layout:
        """How a page lies in memory; its page_bytes is block_size * bytes_per_token."""
        ...

    def bind(self, pages: torch.Tensor, scales: torch.Tensor | None = None) -> Cache:
        """A handle on pages uint8 [num_blocks, at least page_bytes] and the layer's scales, which are not copied."""
        ...

    def plan(self, batch: Batch, group: int, arena: Arena) -> None:
        """Work out a step for all layers of a group, into batch.plans[group].

        Called before the first layer and outside any scope of the arena, since what it takes must live as long as the step.
        """
        ...

    def store(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cos_sin: torch.Tensor | None,
        batch: Batch,
        group: int,
        cache: Cache,
    ) -> None:
        """Turn query [tokens, num_heads, head_dim] in place, and put key and value [tokens, num_kv_heads, head_dim] into the pages.

        The three may be strided views of one buffer, their last dimension contiguous; key may be changed. cos_sin float32 [max_position,
        rotary_dim], cosines then sines; None where rotary_dim is 0. Positions and slots are the batch's; a negative slot is not stored.
        """
        ...

    def attend(
        self,
        out: torch.Tensor,
        query: torch.Tensor,
        batch: Batch,
        group: int,
        cache: Cache,
        arena: Arena,
        sinks: torch.Tensor | None = None,
    ) -> None:
        """out [tokens, num_heads, head_dim]: each query token over its own context, its own key and value included.

        sinks float32 [num_heads], where has_sinks. Scratch comes from the arena and grows with the batch's numbers of tokens and rows
        and its max_length only. Entries of the block table that no query of the step sees are not read.
        """
        ...


def load(name: str, device: str = "cpu") -> type[Backend]:
    """The back end class of that name, in any case. Raises UnknownNameError, with the nearest name, if there is none."""
    file = plugins.file_name(name)
    known = ORDER[device]
    if file not in known:
        near = difflib.get_close_matches(file, known, n=1)
        hint = f"did you mean {near[0].upper()}? " if near else ""
        raise plugins.UnknownNameError(f"unknown attention back end {name!r}", f"{hint}known: {', '.join(n.upper() for n in known)}")
    backend: type[Backend] = plugins.load("attention", file).Backend
    return backend


def choose_backend(facts: Facts, name: str | None = None, mode: str = "fast", dry: bool = False, device: str = "cpu") -> Choice:
    """The back end for a layer: the named one, else the first in order that does not refuse. `implementation` of the Choice is the Backend.

    mode "reference" takes torch_sdpa whatever else there is. Raises ConfigError, with the reasons, if the named one refuses.
    """
    if name is None and mode == "reference":
        name = "torch_sdpa"
    candidates: tuple[str, ...] = (plugins.file_name(name),) if name else ORDER[device]
    refusals: list[str] = []
    for candidate in candidates:
        cls: Any = load(candidate, device)
        reason = cls.refuses(facts)
        if reason is None:
            return Choice("attention", candidate, cls(facts, dry), refusals)
        refusals.append(f"{candidate}: {reason}")
    hint = "leave --attention-backend out to have one chosen" if name else None
    raise ConfigError(f"no attention back end can do this: {'; '.join(refusals)}", hint)


def check_pages(pages: torch.Tensor, layout: Layout, scales: torch.Tensor | None) -> Cache:
    """A Cache of pages that fit the layout; ValueError if they do not."""
    if pages.dtype != torch.uint8 or pages.dim() != 2 or pages.shape[1] < layout.page_bytes or pages.stride(1) != 1:
        shape = f"{pages.dtype} {list(pages.shape)}"
        raise ValueError(f"pages must be uint8 [num_blocks, at least {layout.page_bytes}], contiguous in a page, not {shape}")
    return Cache(pages, scales)
