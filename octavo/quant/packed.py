"""Packed integers: several small ones in each int32 of a checkpoint, as the rows of bits that kernels read."""

import torch

from octavo.errors import CheckpointError


def bits_of(words: torch.Tensor) -> torch.Tensor:
    """int32 [rows, n], each row a run of bits with the lowest first, as the same bytes: uint8 [rows, 4 n]."""
    if words.is_meta:
        return torch.empty(words.shape[0], 4 * words.shape[1], dtype=torch.uint8, device="meta")
    # by way of a flat tensor: one column has any stride there is
    return words.contiguous().flatten().view(torch.uint8).view(words.shape[0], 4 * words.shape[1])


def nibbles(words: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """int32 [rows, n] as uint8 [rows, 8 n]: number order[i] of each word's eight is its nibble i, from the lowest."""
    places = torch.tensor([order.index(number) * 4 for number in range(8)], dtype=torch.int32, device=words.device)
    return ((words[:, :, None] >> places) & 15).to(torch.uint8).flatten(1)


def check_groups(path: str, indices: torch.Tensor, num_groups: int) -> None:
    """Raise CheckpointError where a column is in a group that is not there: kernels would read beyond the scales."""
    if not indices.is_meta and (int(indices.min()) < 0 or int(indices.max()) >= num_groups):
        raise CheckpointError(f"{path} names groups that are not there (of {num_groups})", "the checkpoint is damaged")
