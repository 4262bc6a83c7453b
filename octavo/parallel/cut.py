"""Cuts: which run of a tensor's axis belongs to which rank."""

from dataclasses import dataclass

from octavo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Cut:
    """Positions start .. start + length of one axis."""

    axis: int
    start: int
    length: int

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the piece of a tensor of shape `whole`."""
        return tuple(self.length if axis == self.axis else extent for axis, extent in enumerate(whole))


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that hold one model together, and which of them this is.

    expert_size: with expert parallelism, the ranks that share the experts of a mixture out, each expert whole on one of them.
    """

    rank: int = 0
    size: int = 1
    expert_rank: int = 0
    expert_size: int = 1


ONE = Group()


def even(count: int, group: Group, what: str) -> int:
    """Each rank's share of `count` things called `what`. Raises ConfigError if they cannot be shared evenly."""
    if count % group.size:
        sizes = [str(size) for size in range(1, count + 1) if count % size == 0]
        raise ConfigError(f"tensor parallel size {group.size} does not divide {count} {what}", f"use {_one_of(sizes[:8])}")
    return count // group.size


def cut(axis: int, extent: int, group: Group, what: str = "positions") -> Cut | None:
    """This rank's run of an axis of `extent`; None where there is only one rank."""
    if group.size == 1:
        return None
    length = even(extent, group, what)
    return Cut(axis, group.rank * length, length)


def shared(count: int, group: Group, what: str) -> tuple[int, int]:
    """(first, number) of the things that this rank holds, where several ranks may hold the same one: fewer kv heads than ranks."""
    if group.size > count and group.size % count == 0:
        return group.rank * count // group.size, 1
    number = even(count, group, what)
    return group.rank * number, number


def run(extent: int, rank: int, size: int) -> tuple[int, int]:
    """(start, length) of a rank's run of an axis; the last ranks have less, or nothing, where it does not divide evenly."""
    share = -(-extent // size)
    start = min(extent, rank * share)
    return start, min(share, extent - start)


def _one_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
