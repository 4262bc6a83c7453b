"""State specs: what one layer keeps for a sequence. The cache allocates from them and the plan computes from them."""

from typing import Literal

import msgspec

Kind = Literal["full", "sliding", "recurrent"]


class StateSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer keeps.

    kind: names the manager (octavo/kvcache/kinds/<kind>.py).
    bytes_per_token: of one token's entry, in the number format of the cache; 0 for recurrent state.
    bytes_per_sequence: state of fixed size that a sequence holds however long it is (recurrent).
    window: a sliding layer's token sees itself and the window-1 tokens before it; 0 = no window.
    tokens_per_entry: tokens that share one entry (1 for plain attention; more for compressed caches).
    """

    kind: Kind
    bytes_per_token: int = 0
    bytes_per_sequence: int = 0
    window: int = 0
    tokens_per_entry: int = 1


class LayerState(msgspec.Struct, frozen=True):
    """One layer's spec under the name that the worker knows it by."""

    name: str
    spec: StateSpec


class Group(msgspec.Struct, frozen=True):
    """Layers that share one block table. Of each block that the group holds, layer i has the bytes from i * page_bytes on."""

    spec: StateSpec
    layers: list[str]
    page_bytes: int  # of one layer's part of a block


class CachePlan(msgspec.Struct, frozen=True):
    """What the worker allocates: one buffer of `num_blocks` x `block_bytes`.

    A block holds the tokens of all layers of whichever group has it, so that groups of different formats draw from one pool. Block 0 is the
    null block: no request owns it, and a table entry of 0 means "nothing here".
    """

    block_size: int  # tokens in a block
    num_blocks: int
    block_bytes: int
    groups: list[Group]

    @property
    def total_bytes(self) -> int:
        return self.num_blocks * self.block_bytes
