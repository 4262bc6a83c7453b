"""Panels: how a weight [n, k] lies in memory for the register tile: `lanes` rows beside each other, so that one load feeds them all.

float32: [n / lanes, k, lanes]. bfloat16: [n / lanes, k / 2, lanes, 2], pairs along k, as the dot-product instruction takes them. Rows
beyond n and an odd k's partner are zero.
"""

import torch

from octavo.device import memory
from octavo.ops.cpu import features


def shape(n: int, k: int, dtype: torch.dtype, lanes: int | None = None) -> tuple[int, ...]:
    """The shape of the panels of one weight [n, k]."""
    lanes = lanes or features.lanes()
    panels = -(-n // lanes)
    return (panels, -(-k // 2), lanes, 2) if dtype == torch.bfloat16 else (panels, k, lanes)


def pack(weight: torch.Tensor) -> torch.Tensor:
    """The panels of weight [n, k], or [weights, n, k] one weight after the other, in memory of their own on huge pages."""
    *outer, n, k = weight.shape
    whole = (*outer, *shape(n, k, weight.dtype))
    if weight.is_meta:
        return torch.empty(whole, dtype=weight.dtype, device="meta")
    size = weight.dtype.itemsize
    for extent in whole:
        size *= extent
    packed = memory.allocate(size).view(weight.dtype).view(whole)
    for index in range(outer[0]) if outer else (...,):
        _fill(packed[index], weight[index])
    return packed


def _fill(panels: torch.Tensor, weight: torch.Tensor) -> None:
    """Copy weight [n, k] into zeroed panels, without a second copy of it on the way."""
    n, k = weight.shape
    lanes = panels.shape[2]
    whole, rest = n // lanes, n % lanes
    if weight.dtype != torch.bfloat16:
        panels[:whole].movedim(2, 1).copy_(weight[: whole * lanes].unflatten(0, (whole, lanes)))
        if rest:
            panels[whole, :, :rest].copy_(weight[whole * lanes :].t())
        return
    pairs = k // 2
    even = weight[:, : 2 * pairs].unflatten(1, (pairs, 2))
    panels[:whole, :pairs].movedim(2, 1).copy_(even[: whole * lanes].unflatten(0, (whole, lanes)))
    if rest:
        panels[whole, :pairs, :rest].movedim(1, 0).copy_(even[whole * lanes :])
    if k % 2:
        panels[:whole, pairs, :, 0].copy_(weight[: whole * lanes, -1].unflatten(0, (whole, lanes)))
        if rest:
            panels[whole, pairs, :rest, 0].copy_(weight[whole * lanes :, -1])


def unpack(panels: torch.Tensor, n: int, k: int) -> torch.Tensor:
    """The weight [n, k] that `pack` was given."""
    if panels.dtype == torch.bfloat16:
        return panels.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)[:n, :k]
    return panels.movedim(2, 1).flatten(0, 1)[:n, :k]
