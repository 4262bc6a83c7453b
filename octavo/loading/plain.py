"""Plain: a checkpoint of plain numbers, all that is known of it before it is read."""

from dataclasses import dataclass

import torch

from octavo.checkpoint import index as checkpoint_index
from octavo.checkpoint.index import Index
from octavo.config.config import Config
from octavo.errors import ConfigError
from octavo.layers.decoder import CausalLM
from octavo.layers.stored import Stored, stored_parameters
from octavo.loading.build import bare, model_dtype
from octavo.loading.files import FLOATS
from octavo.loading.quantize import quantize
from octavo.quant.format import Role, Source
from octavo.quant.schemes import unquantized


@dataclass(frozen=True, slots=True)
class Done:
    """How much was read and written, and how many weights are coded."""

    read_bytes: int
    written_bytes: int
    num_coded: int
    num_plain: int


@dataclass(frozen=True, slots=True)
class Plain:
    """model: on the meta device. roles: what each weight is for, by its path without `.weight`."""

    index: Index
    model: CausalLM
    dtype: torch.dtype
    roles: dict[str, Role]
    stored: list[Stored]

    def role(self, path: str) -> Role | None:
        """Of the parameter called `path`; None for what is no weight of a matrix."""
        return self.roles.get(path.removesuffix(".weight")) if path.endswith(".weight") else None


class _Roles(unquantized.Scheme):
    """A plain scheme that notes what each weight is for."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.roles: dict[str, Role] = {}

    def weight(self, path: str, role: Role) -> unquantized.Format:
        self.roles[path] = role
        return super().weight(path, role)


def read_plain(config: Config) -> Plain:
    """Raises ConfigError for a checkpoint that has been quantized, by its configuration or by its headers."""
    index = checkpoint_index.read(config.model.path)
    others = (entry.number_format for entry in index.entries.values() if entry.number_format not in FLOATS)
    coded = next(others, None) if index.kind == "gguf" else None  # a folder may have masks that no model reads
    stored_in = config.model.quantization or coded
    if stored_in is not None:
        hint = "octavo quantize reads checkpoints of plain numbers, of which nothing is lost yet"
        raise ConfigError(f"{config.model.path} has been quantized already: it is in {stored_in}", hint)
    model, dtype = bare(config), model_dtype(config)
    noted = _Roles(Source(dtype))
    quantize(model, noted, torch.device("meta"))
    return Plain(index, model, dtype, noted.roles, list(stored_parameters(model)))
