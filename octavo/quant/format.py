"""Formats: what a checkpoint stores of one weight [rows, columns], tensor by tensor, and what kernels get of it.

A scheme is a file in octavo/quant with a class `Scheme`; it gives each weight of a model a Format, by the weight's path and role. What a
format declares of its tensors (which axis follows which of the weight's, in what units) is enough to cut parts, experts and shards on the
packed bytes, and to know all sizes before anything is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import nn

from octavo.errors import ConfigError
from octavo.ops.linear import Activation
from octavo.ops.weights import Layout, Tensors
from octavo.parallel.cut import Cut

Role = Literal["linear", "embedding", "head", "expert", "router"]
MustBe = Literal["finite", "not negative", "positive", "blocks"]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a stored tensor. of: the axis of the weight that it follows, `unit` entries for each `per` positions there, the last run
    rounded up; "all columns": those of the whole weight, whichever of them a rank has; "all numbers": rows x columns of the whole weight;
    None: an axis of `size` entries of its own.
    """

    of: Literal["rows", "columns", "all columns", "all numbers"] | None
    per: int = 1
    unit: int = 1
    size: int = 1

    def extent(self, rows: int, columns: int, whole: tuple[int, int]) -> int:
        """Entries of this axis for a weight [rows, columns] that is a piece of one of shape `whole`."""
        if self.of is None:
            return self.size
        counted = {"rows": rows, "columns": columns, "all columns": whole[1], "all numbers": whole[0] * whole[1]}[self.of]
        return -(-counted // self.per) * self.unit


ROWS, COLUMNS = Axis("rows"), Axis("columns")


@dataclass(frozen=True, slots=True)
class Field:
    """One stored tensor of a weight: `path.name` in the checkpoint.

    number_format: what the checkpoint's header must say it is; its bytes are taken as they are, in memory as `dtype`. None: any plain
    floating-point format, converted to dtype. default: its value where the checkpoint need not have it; None: it must. is_flat: on disk its
    entries are one run, in the order of these axes. must_be: what its numbers are checked for when they have been read, see
    octavo/quant/scales.py; "blocks": the scales inside of a GGUF file's.
    """

    name: str
    axes: tuple[Axis, ...]
    dtype: torch.dtype
    number_format: str | None = None
    default: float | None = None
    is_flat: bool = False
    must_be: MustBe | None = None

    @property
    def row_axis(self) -> int | None:
        """The axis that follows the weight's rows."""
        return next((index for index, axis in enumerate(self.axes) if axis.of == "rows"), None)

    def shape(self, rows: int, columns: int, whole: tuple[int, int]) -> tuple[int, ...]:
        """Of the tensor of a weight [rows, columns] that is a piece of one of shape `whole`."""
        return tuple(axis.extent(rows, columns, whole) for axis in self.axes)

    def cut(self, cut: Cut | None, path: str) -> Cut | None:
        """The cut of this tensor that belongs to a cut of the weight. Raises ConfigError where that falls inside a unit."""
        if cut is None:
            return None
        of = ("rows", "columns")[cut.axis]
        for index, axis in enumerate(self.axes):
            if axis.of != of:
                continue
            if cut.start % axis.per or cut.length % axis.per:
                fact = f"{path}.{self.name}: a rank's {cut.length} {of} are not whole groups of {axis.per}, which share a stored number"
                raise ConfigError(fact, "use a smaller tensor parallel size; experts can be shared out whole with expert parallelism")
            return Cut(index, cut.start // axis.per * axis.unit, cut.length // axis.per * axis.unit)
        return None


class Format(Protocol):
    """How one weight is stored, and kept. Frozen plain data: weights of equal formats that share an input lie together.

    fields: what is stored. can_join: whether the parts of a fused layer may lie in one run of memory. A format whose products have coded
    inputs has an attribute `activation` besides: see `activation`.
    """

    @property
    def fields(self) -> tuple[Field, ...]: ...
    @property
    def can_join(self) -> bool: ...
    def finish(self, filled: "Filled") -> tuple[Layout, Tensors]:
        """What kernels get of what was filled, in the rows' order; on meta tensors too. Raises CheckpointError for values that do not
        belong together; what a tensor's own numbers must be its field says.
        """
        ...


def activation(format: Format) -> Activation | None:
    """How the inputs of a format's products are coded, see octavo/ops/linear.py; None: they are not."""
    return getattr(format, "activation", None)


@dataclass(frozen=True, slots=True)
class Filled:
    """The stored tensors of the parts of a weight: `path` for messages, `rows` of each part, `columns` of all; starts: the row and the
    column of each part's whole weight at which this rank's piece begins, and how many columns that weight has.

    tensors: of a field that follows the rows one tensor, the parts one behind the other along that axis; of any other field the parts'
    tensors on a new axis 0.
    """

    path: str
    rows: tuple[int, ...]
    columns: int
    tensors: Mapping[str, torch.Tensor]
    starts: tuple[tuple[int, int, int], ...] = ()

    @property
    def num_rows(self) -> int:
        return sum(self.rows)

    def per_row(self, values: torch.Tensor) -> torch.Tensor:
        """[num_rows] of one number for each part, [parts] or [parts, 1]."""
        flat = values.reshape(len(self.rows), -1)[:, 0]
        if flat.is_meta:
            return torch.empty(self.num_rows, dtype=values.dtype, device="meta")
        return flat.repeat_interleave(torch.tensor(self.rows))


@dataclass(frozen=True, slots=True)
class Source:
    """What a scheme may know of a checkpoint. config: its quantization_config. number_format, shape: what a tensor's header says, by its
    path; None where there is no such tensor.
    """

    dtype: torch.dtype
    config: Mapping[str, Any] = field(default_factory=dict)
    number_format: Callable[[str], str | None] = lambda path: None
    shape: Callable[[str], tuple[int, ...] | None] = lambda path: None


_BYTES = {"I8": torch.int8, "U8": torch.uint8, "I32": torch.int32, "I64": torch.int64}


def unused(source: Source, path: str, *names: str) -> tuple[Field, ...]:
    """Fields for those of `names` that a checkpoint has beside a weight and that mean nothing here (scales of activations): they are read,
    so that every tensor is accounted for.
    """
    found = []
    for name in names:
        number_format, shape = source.number_format(f"{path}.{name}"), source.shape(f"{path}.{name}")
        if number_format is not None and shape is not None:
            axes = tuple(Axis(None, size=size) for size in shape)
            is_whole = number_format in _BYTES
            found.append(Field(name, axes, _BYTES.get(number_format, torch.float32), number_format if is_whole else None))
    return tuple(found)


def refuse_cache(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a cache that a checkpoint is calibrated for and octavo has not: its scales belong to attention, not here."""
    scheme, algorithm = config.get("kv_cache_scheme"), config.get("kv_cache_quant_algo")
    is_fp8 = isinstance(scheme, Mapping) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8)
    hint = "octavo knows caches of 8 bit floats and of nvfp4 from checkpoints"
    if scheme and not is_fp8:
        raise ConfigError(f"quantization_config: kv_cache_scheme {scheme!r} is not read here", hint)
    if str(algorithm or "FP8").upper() not in ("FP8", "NVFP4", "NONE"):
        raise ConfigError(f"quantization_config: kv_cache_quant_algo {algorithm!r} is not read here", hint)


class Scheme:
    """The formats of a model's weights. Subclasses are `octavo/quant/<name>.py`: Scheme; they say the format of each weight."""

    stores_plain: ClassVar[bool] = False  # whether random weights can stand for the checkpoint's

    def __init__(self, source: Source) -> None:
        self.dtype = source.dtype

    def weight(self, path: str, role: Role) -> Format:
        """The format of the weight that the checkpoint calls `path` (without `.weight`)."""
        raise NotImplementedError

    def vector(self, size: int, device: torch.device) -> nn.Parameter:
        """A norm's weight or a bias: plain numbers of the model's format."""
        return nn.Parameter(torch.empty(size, dtype=self.dtype, device=device), requires_grad=False)
