"""Weights that other projects wrote and the numbers that they read there, from tests/quant/fixtures; and reading one through a scheme."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from octavo.checkpoint import index as checkpoint_index
from octavo.checkpoint.names import Row
from octavo.layers.weight import Piece, Weight
from octavo.loading.fill import Fill
from octavo.loading.number_formats import NumberFormats
from octavo.loading.quantize import scheme
from octavo.ops.weights import Coded, decode
from octavo.parallel.cut import Cut
from octavo.quant.format import Source

FIXTURES = Path(__file__).parent / "fixtures"
PATH = "model.layers.0.mlp.down_proj"


@dataclass(frozen=True)
class Case:
    """stored: by what comes after the weight's path. config: quantization_config. oracle: whose bytes and numbers these are."""

    name: str
    scheme: str
    oracle: str
    config: dict[str, Any]
    stored: dict[str, torch.Tensor]
    numbers: torch.Tensor

    def __str__(self) -> str:
        return f"{self.scheme}-{self.name}"

    @property
    def shape(self) -> tuple[int, int]:
        return self.numbers.shape[0], self.numbers.shape[1]

    @property
    def bits_per_number(self) -> float:
        """Of all that is stored for the weight."""
        return sum(tensor.nbytes for tensor in self.stored.values()) * 8 / self.numbers.numel()


@cache
def cases() -> tuple[Case, ...]:
    """All of them, from every file of fixtures."""
    return tuple(case for file in sorted(FIXTURES.glob("*.safetensors")) for case in _read(file))


def _read(file: Path) -> Iterator[Case]:
    with safe_open(file, "pt") as opened:
        header, keys = opened.metadata(), list(opened.keys())
        for name, about in json.loads(header["cases"]).items():
            stored = {key.removeprefix(f"{name}/stored/"): opened.get_tensor(key) for key in keys if key.startswith(f"{name}/stored/")}
            yield Case(
                name, about.get("scheme", header["scheme"]), header["oracle"], about["config"], stored, opened.get_tensor(f"{name}/numbers")
            )


class Written:
    """A case in a file of its own, to be read in pieces."""

    def __init__(
        self, folder: Path, case: Case, dtype: torch.dtype = torch.bfloat16, names: Sequence[Row] = (), prefix: str = PATH, path: str = ""
    ) -> None:
        """prefix: of the tensors' names on disk; path: what the weight is called below it."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"{prefix}.{name}": tensor.contiguous() for name, tensor in case.stored.items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        self.case, self.names = case, tuple(names)
        self.index = checkpoint_index.read(folder)
        found = NumberFormats(self.index, self.names)
        self.scheme = scheme(case.scheme, Source(torch.bfloat16, case.config, found, found.shape))
        self.path = f"{prefix}.{path}" if path else prefix
        self.format = self.scheme.weight(self.path, "expert" if path else "linear")

    def reread(self, config: dict[str, Any]) -> torch.Tensor:
        """The numbers, where the configuration says something else."""
        found = NumberFormats(self.index, self.names)
        self.scheme = scheme(self.case.scheme, Source(torch.bfloat16, config, found, found.shape))
        self.format = self.scheme.weight(self.path, "linear")
        return self.numbers()

    def numbers(self, cut: Cut | None = None) -> torch.Tensor:
        """What a rank with this cut reads, float32; its sizes are those that were planned on the meta device."""
        piece = Piece(self.path, *self.case.shape, cut)
        planned = Weight(self.format, [piece], torch.device("meta"))
        planned.finish(lambda layout, weight: weight)
        weight = Weight(self.format, [piece], torch.device("cpu"))
        with Fill(self.index, self.names) as fill:
            stored = list(weight.stored())
            if self.names:  # the file holds other weights too
                fill.fill(stored)
            else:
                fill.check(stored)
                fill.fill(stored)
                fill.finish()
        weight.finish(lambda layout, tensors: tensors)
        assert weight.layout == planned.layout
        tensors = tuple(weight.tensors)
        assert [(each.shape, each.dtype) for each in tensors] == [(each.shape, each.dtype) for each in planned.tensors]
        assert weight.layout is not None
        count = len(weight.layout.names) if isinstance(weight.layout, Coded) else 1  # an input scale may follow
        return decode(weight.layout, tensors[:count], weight.num_rows, weight.columns)
