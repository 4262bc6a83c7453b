"""Fill: every stored parameter finds its tensor on disk, is read through its views and written into its place, exactly once.

`check` looks at headers only and lists all that is wrong before a weight is read. `fill` may then be called once per piece of the model, so
that each piece can be packed before the next is read. `finish` closes the account.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from types import TracebackType

from octavo.checkpoint.entry import Entry
from octavo.checkpoint.index import Index
from octavo.checkpoint.names import Expert, Located, Names, Part, Row, Skip, View, expand_experts
from octavo.layers.stored import Stored
from octavo.loading.account import Account, duplicates, missing, refuse
from octavo.loading.files import FLOATS, Files
from octavo.loading.threads import Threads
from octavo.loading.views import Blocks, Bytes, Joined, Lazy, Plain, lazily
from octavo.ops import gguf_blocks

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Use:
    """What a parameter takes from one tensor on disk."""

    disk: str
    views: tuple[View, ...]
    num_elements: int


@dataclass(frozen=True, slots=True)
class _Found:
    lazy: Lazy
    uses: tuple[_Use, ...]


class Fill:
    """index: the checkpoint. names: the model's rows and skips, from its checkpoint's names to its paths; GGUF's own table is put below
    them. progress: called with (bytes done, bytes in all), as they are on disk.
    """

    def __init__(self, index: Index, names: Sequence[Row | Skip] = (), progress: Progress | None = None) -> None:
        self._index = index
        self._tables = (Names.of(names), index.names)
        self._progress = progress
        self._files = Files()
        self._account = Account(index.entries)
        self._found: dict[str, _Found | None] = {}
        self._filled: set[str] = set()
        self._bytes_done = 0

    def check(self, stored: Iterable[Stored]) -> None:
        """All of a model's stored parameters against the checkpoint, by the headers; only paths and shapes are looked at.

        Raises CheckpointError with the list of tensors that are missing, wrongly shaped, in a format that cannot be read, used twice, used
        only in part or used by nothing.
        """
        for one in stored:
            self._find(one)
        refuse(self._index.path, [*self._account.faults, *self._account.unused(self._tables), *self._unequal_duplicates()])

    def fill(self, stored: Iterable[Stored]) -> None:
        """Read what `stored` asks for into its places. Raises CheckpointError as check does, for what is asked for here."""
        found = [(one, self._find(one)) for one in stored]
        refuse(self._index.path, self._account.faults)
        with Threads() as threads:
            for one, its in found:
                if one.path in self._filled:
                    raise ValueError(f"{one.path} was filled before")
                self._filled.add(one.path)
                if its is None:
                    assert one.default is not None
                    one.target.fill_(one.default)
                    continue
                lazy = its.lazy if one.cut is None else its.lazy.cut(one.cut.axis, one.cut.start, one.cut.length)
                threads.run(lazy.steps(one.target))
                self._note_progress(its)
        self._files.drop_pages()

    def is_stored(self, path: str) -> bool:
        """Whether the checkpoint has a parameter that was checked; one with a default it need not have."""
        return self._found.get(path) is not None

    def finish(self) -> None:
        """Raises CheckpointError if a tensor was not used, ValueError if a parameter that was checked was never filled."""
        refuse(self._index.path, [*self._account.faults, *self._account.unused(self._tables)])
        left = [path for path in self._found if path not in self._filled]
        if left:
            raise ValueError(f"{len(left)} parameters were never filled: {', '.join(left[:5])}")
        if self._progress is not None:
            self._progress(self._index.total_bytes, self._index.total_bytes)

    def close(self) -> None:
        """Unmap the files."""
        self._found.clear()
        self._files.close()

    def __enter__(self) -> "Fill":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _find(self, stored: Stored) -> _Found | None:
        """The parameter's tensor, looked for once; faults go to the account."""
        if stored.path in self._found:
            return self._found[stored.path]
        faults = self._account.faults
        try:
            found = self._lookup(self._tables, stored, stored.path)
        except ValueError as error:
            faults.append(f"{stored.path}: {error}")
            self._found[stored.path] = None
            return None
        self._found[stored.path] = found
        if found is None and stored.default is not None:
            return None
        if found is None:
            faults.append(missing(stored.path, self._looked_for(stored.path)))
            return None
        if stored.is_flat and prod(found.lazy.shape) == prod(stored.shape):
            found = self._found[stored.path] = _Found(Plain(found.lazy.read().reshape(stored.shape)), found.uses)
        for use in found.uses:
            self._account.use(use.disk, use.views, stored.path, use.num_elements)
        if found.lazy.shape != stored.shape:
            faults.append(f"{stored.path} has shape {list(found.lazy.shape)} in the checkpoint, {list(stored.shape)} in the model")
        return found

    def _lookup(self, tables: Sequence[Names], stored: Stored, name: str) -> _Found | None:
        """`name` through the tables, from the model's words down to the disk's. None if it is not there in any way."""
        if not tables:
            entry = self._index.entries.get(name)
            return None if entry is None else _Found(self._open(entry, stored.number_format), (_Use(name, (), entry.num_elements),))
        for way in tables[0].candidates(name):
            pieces = expand_experts(way, stored.shape[0] if stored.shape else 0)
            found = [self._piece(tables[1:], stored, piece) for piece in pieces]
            if pieces and all(found):
                return _join(pieces, [one for one in found if one is not None])
        return None

    def _piece(self, tables: Sequence[Names], stored: Stored, piece: Located) -> _Found | None:
        below = self._lookup(tables, stored, piece.disk)
        if below is None:
            return None
        lazy = below.lazy
        for view in piece.views:
            if isinstance(lazy, Bytes) and not lazy.allows(view):
                raise ValueError(f"{piece.disk} is stored in blocks, which {view} would tear")
            lazy = lazily(view, lazy)
        count, whole = prod(lazy.shape), prod(below.lazy.shape)
        if len(below.uses) > 1 and count != whole:
            raise ValueError(f"{piece.disk} is joined from several tensors, and {piece.views} takes a part of it")
        # in elements, whatever the lazy tensor counts in
        taken = [use.num_elements * count // max(1, whole) for use in below.uses]
        uses = tuple(_Use(use.disk, (*use.views, *piece.views), number) for use, number in zip(below.uses, taken, strict=True))
        return _Found(lazy, below.uses if len(below.uses) > 1 else uses)

    def _open(self, entry: Entry, number_format: str | None) -> Lazy:
        """The tensor on disk; in `number_format`, as it is. ValueError for a number format that no weight can be read from."""
        if number_format is not None:
            if entry.number_format != number_format:
                raise ValueError(f"{entry.name} is in {entry.number_format}, not in {number_format}")
            return self._as_it_is(entry)
        if entry.number_format in FLOATS:
            return Plain(self._files.plain(entry))
        if self._index.kind == "gguf" and entry.number_format in gguf_blocks.FORMATS:
            return Blocks.of(self._files.raw(entry), entry.number_format, entry.shape)
        known = gguf_blocks.FORMATS if self._index.kind == "gguf" else FLOATS
        raise ValueError(f"{entry.name} is in {entry.number_format}, which is not read here (known: {', '.join(known)})")

    def _as_it_is(self, entry: Entry) -> Lazy:
        if self._index.kind == "gguf":
            elements, size_bytes = gguf_blocks.SIZES[entry.number_format]
            raw = self._files.raw(entry)
            return Bytes(raw.view(*entry.shape[:-1], entry.shape[-1] // elements * size_bytes))
        return Plain(self._files.as_it_is(entry))

    def _looked_for(self, path: str) -> list[str]:
        names = [path]
        for table in self._tables:
            names = [piece.disk for name in names for way in table.candidates(name) for piece in way]
        return list(dict.fromkeys(name for name in names if self._index.kind == "safetensors" or name != path))

    def _unequal_duplicates(self) -> list[str]:
        """Tensors that are skipped because they repeat another one: were they not equal, the model would not be what the config says."""
        faults = []
        for skip in duplicates(self._tables):
            twin, original = self._index.entries.get(skip.disk), self._index.entries.get(skip.same_as or "")
            if twin is None or original is None:
                continue
            is_same_kind = (twin.number_format, twin.shape) == (original.number_format, original.shape)
            if not is_same_kind or not self._files.raw(twin).equal(self._files.raw(original)):
                differs = f"{skip.disk} should repeat {skip.same_as} ({skip.reason}), but differs"
                faults.append(f"{differs}: tie_word_embeddings in config.json is wrong")
        return faults

    def _note_progress(self, found: _Found) -> None:
        for use in found.uses:
            entry = self._index.entries[use.disk]
            self._bytes_done += entry.size_bytes * use.num_elements // max(1, entry.num_elements)
        if self._progress is not None:
            self._progress(self._bytes_done, self._index.total_bytes)


def _join(pieces: Sequence[Located], found: Sequence[_Found]) -> _Found:
    """The pieces of one parameter as one. ValueError if they leave gaps or do not fit together."""
    placed = [next((view for view in piece.views if _is_place(view)), None) for piece in pieces]
    if len(found) == 1 and placed[0] is None:
        return found[0]
    uses = tuple(use for one in found for use in one.uses)
    lazies = [one.lazy for one in found]
    if all(isinstance(view, Expert) for view in placed):
        if len({lazy.shape for lazy in lazies}) > 1:
            raise ValueError("its experts differ in shape")
        return _Found(Joined(lazies, stacked=True), uses)
    parts = sorted(
        ((view, lazy) for view, lazy in zip(placed, lazies, strict=True) if isinstance(view, Part)), key=lambda pair: pair[0].start
    )
    position = 0
    for view, lazy in parts:
        if view.start != position or lazy.shape[view.axis] != view.size or view.axis != parts[0][0].axis:
            raise ValueError(f"its parts do not follow one another: {view} after {position}, of shape {list(lazy.shape)}")
        position += view.size
    if len(parts) != len(lazies):
        raise ValueError("some of its pieces are parts and some are not")
    return _Found(Joined([lazy for _, lazy in parts], parts[0][0].axis), uses)


def _is_place(view: View) -> bool:
    return isinstance(view, Part) or (isinstance(view, Expert) and not view.is_packed_on_disk)
