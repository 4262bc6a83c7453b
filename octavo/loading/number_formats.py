"""Number formats: which one a parameter has on disk, and which shape, by the checkpoint's header and the tables of names."""

from collections.abc import Sequence

from octavo.checkpoint.index import Index
from octavo.checkpoint.names import Names, Row, Skip


class NumberFormats:
    """Call it with a parameter's path: the one format of the tensors that hold it; None if there are none, or several formats."""

    def __init__(self, index: Index, names: Sequence[Row | Skip]) -> None:
        self._entries = index.entries
        self._tables = (Names.of(names), index.names)

    def __call__(self, path: str) -> str | None:
        found = self._of(self._tables, path)
        return found.pop() if len(found) == 1 else None

    def shape(self, path: str) -> tuple[int, ...] | None:
        """Of the one tensor on disk that is called so; None if there is none."""
        entry = self._entries.get(path)
        return None if entry is None else entry.shape

    def _of(self, tables: Sequence[Names], name: str) -> set[str]:
        if not tables:
            entry = self._entries.get(name)
            return set() if entry is None else {entry.number_format}
        for way in tables[0].candidates(name):
            # experts of a packed parameter are alike: the first tells
            found = [self._of(tables[1:], piece.disk.replace("{e}", "0")) for piece in way]
            if found and all(found):
                return set().union(*found)
        return set()
