"""A layer's weight: in the checkpoint's tensors while it is filled, then in the layout that its kernels read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from octavo.layers.stored import Stored
from octavo.ops.linear import Activation
from octavo.ops.weights import Dense, Layout
from octavo.parallel.cut import Cut
from octavo.quant.format import Field, Filled, Format, activation
from octavo.quant.scales import check_numbers


@dataclass(frozen=True, slots=True)
class Piece:
    """What one path of the checkpoint gives to a weight: `rows` of it in all, of which `cut` (of rows or of columns) is this rank's."""

    path: str
    rows: int
    columns: int
    cut: Cut | None = None

    @property
    def whole(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def start(self) -> tuple[int, int, int]:
        """The row and the column at which this rank's piece begins, and the columns of the whole."""
        first = (0, 0) if self.cut is None else (self.cut.start, 0) if self.cut.axis == 0 else (0, self.cut.start)
        return *first, self.columns

    @property
    def shape(self) -> tuple[int, int]:
        """This rank's."""
        rows, columns = (self.rows, self.columns) if self.cut is None else self.cut.shape((self.rows, self.columns))
        return rows, columns


class Weight(nn.Module):
    """The pieces of one format, one behind the other along the rows."""

    def __init__(self, format: Format, pieces: Sequence[Piece], device: torch.device) -> None:
        super().__init__()
        self.pieces = tuple(pieces)
        self.rows = tuple(piece.shape[0] for piece in pieces)
        self.columns = pieces[0].shape[1]
        self.layout: Layout | None = None
        self._format = format
        # here, so that a cut that cannot be is refused before anything is read
        self._cuts = {field.name: [field.cut(piece.cut, piece.path) for piece in pieces] for field in format.fields}
        for field in format.fields:
            shapes = [field.shape(*piece.shape, piece.whole) for piece in pieces]
            axis = field.row_axis
            whole = (len(pieces), *shapes[0])
            if axis is not None:
                whole = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
            tensor = torch.empty(whole, dtype=field.dtype, device=device)
            self.register_parameter(_parameter(field.name), nn.Parameter(tensor, requires_grad=False))

    @property
    def num_rows(self) -> int:
        return sum(self.rows)

    @property
    def activation(self) -> Activation | None:
        """How the inputs of this weight's products are coded."""
        return activation(self._format)

    def stored(self) -> Iterator[Stored]:
        """What is read of the checkpoint."""
        for field, number, place in self._places():
            piece = self.pieces[number]
            yield Stored(
                f"{piece.path}.{field.name}",
                field.shape(*piece.whole, piece.whole),
                place,
                self._cuts[field.name][number],
                number_format=field.number_format,
                default=field.default,
                is_flat=field.is_flat,
            )

    def _places(self) -> Iterator[tuple[Field, int, torch.Tensor]]:
        """Each field of each piece, by its number, and where it lies."""
        for field in self._format.fields:
            whole: torch.Tensor = getattr(self, _parameter(field.name))
            axis, start = field.row_axis, 0
            for number, piece in enumerate(self.pieces):
                if axis is None:
                    yield field, number, whole[number]
                    continue
                extent = field.shape(*piece.shape, piece.whole)[axis]
                yield field, number, whole.narrow(axis, start, extent)
                start += extent

    def finish(self, pack: Callable[[Layout, Any], Any]) -> Any:
        """The weight as kernels get it: a tensor where it is plain numbers, else the tensors of its layout. pack(layout, weight): to the
        implementation's own order.

        Raises CheckpointError for numbers that no weight can have.
        """
        for field, number, place in self._places():
            check_numbers(f"{self.pieces[number].path}.{field.name}", place, field)
        names = {field.name: _parameter(field.name) for field in self._format.fields}
        tensors = {name: getattr(self, attribute).data for name, attribute in names.items()}
        # what is wrong in a part is told with all that lie in this run
        paths = " or ".join(piece.path for piece in self.pieces)
        filled = Filled(paths, self.rows, self.columns, tensors, tuple(piece.start for piece in self.pieces))
        layout, kept_as = self._format.finish(filled)
        self.layout = layout
        for attribute in names.values():
            delattr(self, attribute)
        packed = pack(layout, kept_as[0] if isinstance(layout, Dense) else kept_as)
        kept = [packed] if isinstance(packed, torch.Tensor) else list(packed)
        self.tensors = nn.ParameterList(nn.Parameter(tensor, requires_grad=False) for tensor in kept)
        return self.tensors[0] if isinstance(packed, torch.Tensor) else tuple(self.tensors)


def _parameter(field: str) -> str:
    return "stored_" + field.replace(".", "_")


def joined(formats: Sequence[Format], pieces: Sequence[Piece]) -> list[tuple[Format, list[Piece]]]:
    """Runs of neighbouring pieces that may lie together, with their format."""
    runs: list[tuple[Format, list[Piece]]] = []
    for format, piece in zip(formats, pieces, strict=True):
        if runs and runs[-1][0] == format and format.can_join:
            runs[-1][1].append(piece)
        else:
            runs.append((format, [piece]))
    return runs
