"""Names: which tensor on disk holds which parameter, and how it looks there. Plain data, no tensors.

A model, and each GGUF architecture, declares rows. What no row names is found under its own path. A view says how the tensor on disk
becomes the parameter; every view has an inverse, so that one row serves reading, the account of what was used, and writing.
loading/views.py applies them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Split:
    """The tensor on disk is fused from several parameters: this one is disk[start : start + size] along `axis`. Inverse: Part."""

    start: int
    size: int
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """The tensor on disk is one part of the parameter: parameter[start : start + size] along `axis` = disk. Inverse: Split.

    Several rows with one path, each with a Part, make up that parameter; all of them must be there.
    """

    start: int
    size: int
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Expert:
    """One of several experts that stand on axis 0 of a packed tensor. The row's {e} says which, and where {e} stands says who is packed.

    {e} in the path only: the disk is packed, parameter = disk[e]. {e} in the disk name only: the parameter is packed, parameter[e] = disk.
    The two are each other's inverse. Row.bind and Row.bind_disk fill in `index` and `is_packed_on_disk`.
    """

    index: int | None = None
    is_packed_on_disk: bool = True


@dataclass(frozen=True, slots=True)
class Transpose:
    """The last two axes are swapped on disk. Its own inverse."""


@dataclass(frozen=True, slots=True)
class Interleave:
    """`count` tensors are interleaved on disk along `axis`; in the parameter they stand one after the other.

    parameter[p * n + j] = disk[j * count + p] for p < count, n = length / count. Inverse: Interleave with count = n.
    """

    count: int = 2
    axis: int = 0


@dataclass(frozen=True, slots=True)
class RopePermutation:
    """llama.cpp's order of the rows of q and k (weight or bias) in its "llama" architecture: rotated pairs are neighbours there.

    For each head, parameter[p * head_dim / 2 + j] = disk[2 * j + p], p in (0, 1). Inverse: the same with p and j swapped.
    Source: LlamaModel.permute in llama.cpp's convert_hf_to_gguf.py.
    """

    heads: int


@dataclass(frozen=True, slots=True)
class Add:
    """parameter = disk + constant, computed in float32 (Gemma's norms stand in GGUF with 1 added: Add(-1.0)). Inverse: Add(-constant)."""

    constant: float


View = Split | Part | Expert | Transpose | Interleave | RopePermutation | Add

_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    """`blk.{i}.attn_q.weight` as an expression that binds each placeholder to a number; a repeated placeholder must repeat its number."""
    out, last, seen = [], 0, set()
    for match in _PLACEHOLDER.finditer(pattern):
        name = match[1]
        out.append(re.escape(pattern[last : match.start()]))
        out.append(f"(?P={name})" if name in seen else rf"(?P<{name}>0|[1-9]\d*)")
        seen.add(name)
        last = match.end()
    return re.compile("".join([*out, re.escape(pattern[last:])]))


def match(pattern: str, name: str) -> dict[str, int] | None:
    """The numbers behind `pattern`'s placeholders in `name`, or None if it does not match."""
    found = _compiled(pattern).fullmatch(name)
    return None if found is None else {key: int(value) for key, value in found.groupdict().items()}


def fill_in(pattern: str, numbers: dict[str, int]) -> str:
    """`pattern` with its placeholders replaced. A placeholder without a number stays."""
    return _PLACEHOLDER.sub(lambda m: str(numbers[m[1]]) if m[1] in numbers else m[0], pattern)


def placeholders(pattern: str) -> set[str]:
    return set(_PLACEHOLDER.findall(pattern))


@dataclass(frozen=True, slots=True)
class Located:
    """A tensor on disk and the views that make (a piece of) the parameter of it, in order from disk to parameter."""

    disk: str
    views: tuple[View, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """`disk` holds `path`, seen through `view` (one view, or several in the order from disk to parameter).

    Both are names with {i} for a layer's number, {e} for an expert's; any other {word} stands for a number too.
    """

    disk: str
    path: str
    view: "View | tuple[View, ...]" = ()

    @property
    def views(self) -> tuple[View, ...]:
        return self.view if isinstance(self.view, tuple) else (self.view,)

    @property
    def is_piece(self) -> bool:
        """Whether one tensor on disk is only a piece of the parameter."""
        packed = "e" in placeholders(self.disk) and "e" not in placeholders(self.path)
        return packed or any(isinstance(view, Part) for view in self.views)

    def bind(self, path: str) -> Located | None:
        """Where `path` is on disk by this row; None if the row does not name it. {e} stays in the name if the parameter is packed."""
        numbers = match(self.path, path)
        return None if numbers is None else self._located(numbers)

    def bind_disk(self, disk: str) -> tuple[str, Located] | None:
        """The parameter's path, and the view, for a tensor on disk. {e} stays in the path if the disk is packed."""
        numbers = match(self.disk, disk)
        return None if numbers is None else (fill_in(self.path, numbers), self._located(numbers))

    def _located(self, numbers: dict[str, int]) -> Located:
        return Located(fill_in(self.disk, numbers), tuple(self._bound(view, numbers) for view in self.views))

    def _bound(self, view: View, numbers: dict[str, int]) -> View:
        if not isinstance(view, Expert):
            return view
        return replace(view, index=numbers.get("e", view.index), is_packed_on_disk="e" not in placeholders(self.disk))


@dataclass(frozen=True, slots=True)
class Skip:
    """A tensor on disk that is known and on purpose not read, and why. same_as: the tensor on disk that it must repeat, if it is there."""

    disk: str
    reason: str
    same_as: str | None = None


# what checkpoints carry although it is computed, whatever the model
HARMLESS = (
    Skip("model.layers.{i}.self_attn.rotary_emb.inv_freq", "computed from the configuration"),
    Skip("model.rotary_emb.inv_freq", "computed from the configuration"),
    Skip("rotary_emb.inv_freq", "computed from the configuration"),
    Skip("model.layers.{i}.self_attn.masked_bias", "a constant"),
)


@dataclass(frozen=True, slots=True)
class Names:
    """A table of rows and skips. Rows that stand earlier win; among rows for one path, the first whose tensor is on disk."""

    rows: tuple[Row, ...] = ()
    skips: tuple[Skip, ...] = field(default=())

    @classmethod
    def of(cls, rows: Iterable[Row | Skip]) -> "Names":
        """A table from rows and skips in one list."""
        both = tuple(rows)
        return cls(tuple(row for row in both if isinstance(row, Row)), tuple(row for row in both if isinstance(row, Skip)))

    def candidates(self, path: str) -> list[list[Located]]:
        """The ways in which `path` may stand on disk, best first; each is the list of its pieces.

        The last is always the default: under its own name. A packed parameter's pieces keep {e} in their names, for `expand_experts`.
        """
        ways: list[list[Located]] = []
        pieces: list[Located] = []
        for row in self.rows:
            located = row.bind(path)
            if located is None:
                continue
            if row.is_piece and "{e}" not in located.disk:
                pieces.append(located)
            else:
                ways.append([located])
        if pieces:
            ways.append(pieces)
        return [*ways, [Located(path)]]

    def skipped(self, disk: str) -> str | None:
        """Why `disk` is not read, if that is declared."""
        for skip in self.skips:
            if match(skip.disk, disk) is not None:
                return skip.reason
        return None


def expand_experts(pieces: Sequence[Located], count: int) -> list[Located]:
    """The pieces of a packed parameter of `count` experts: each piece that has {e} in its name, once per expert."""
    out: list[Located] = []
    for piece in pieces:
        if "{e}" not in piece.disk:
            out.append(piece)
            continue
        for number in range(count):
            views = tuple(replace(view, index=number) if isinstance(view, Expert) else view for view in piece.views)
            out.append(Located(fill_in(piece.disk, {"e": number}), views))
    return out
