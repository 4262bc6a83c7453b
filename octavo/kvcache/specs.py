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
    """Layers that share one block table. Layer i of a group lives in slot i of a block."""

    spec: StateSpec
    layers: list[str]


class CachePlan(msgspec.Struct, frozen=True):
    """What the worker allocates: one buffer of `slots` x `num_blocks` x `page_bytes`.

    A block id is one column of that buffer, whichever group holds it: group g's layer in slot s keeps the block's tokens at
    [s, block]. Block 0 is the null block: no request owns it, and a table entry of 0 means "nothing here".
    """

    block_size: int  # tokens in a block
    num_blocks: int
    slots: int
    page_bytes: int  # of one layer's part of a block
    groups: list[Group]

    @property
    def block_bytes(self) -> int:
        return self.slots * self.page_bytes

    @property
    def total_bytes(self) -> int:
        return self.num_blocks * self.block_bytes
