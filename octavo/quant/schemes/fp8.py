"""FP8: weights of 8 bit floats (E4M3), with a scale for the tensor or for each block of rows and columns.

The checkpoints of DeepSeek V3, Qwen3-FP8, GLM-FP8 and others. Activations stay in the model's format, also where the checkpoint has scales
for them (`input_scale`): the products are then closer to those of the unquantized model than the checkpoint's makers could assume.
"""

from dataclasses import dataclass

import torch

from octavo.errors import ConfigError
from octavo.ops.weights import Coded, Layout, Tensors
from octavo.quant import format as formats
from octavo.quant import settings
from octavo.quant.format import COLUMNS, ROWS, Axis, Field, Filled, Role, Source
from octavo.quant.scales import scale_rows
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named

_WEIGHT = Field("weight", (ROWS, COLUMNS), torch.float8_e4m3fn, "F8_E4M3")
_INPUT_SCALE = Field("input_scale", (), torch.float32, default=1.0)


@dataclass(frozen=True, slots=True)
class PerTensor:
    """One scale for each part."""

    has_input_scale: bool

    @property
    def fields(self) -> tuple[Field, ...]:
        scale = Field("weight_scale", (), torch.float32, must_be="positive")
        return (_WEIGHT, scale, _INPUT_SCALE) if self.has_input_scale else (_WEIGHT, scale)

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        scales = filled.tensors["weight_scale"]
        codes = filled.tensors["weight"].view(torch.uint8)
        return Coded(code="float8_e4m3", group=0), (codes, filled.per_row(scales)[:, None].contiguous())


@dataclass(frozen=True, slots=True)
class Blockwise:
    """A scale for each block of `rows` x `columns`, smaller at the ends. number_format: of the scales; None: plain floats."""

    rows: int
    columns: int
    number_format: str | None

    @property
    def fields(self) -> tuple[Field, ...]:
        axes = (Axis("rows", self.rows), Axis("columns", self.columns))
        dtype = torch.uint8 if self.number_format else torch.float32
        return (_WEIGHT, Field("weight_scale_inv", axes, dtype, self.number_format, must_be="not negative"))

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        scales = filled.tensors["weight_scale_inv"]
        scale = "e8m0" if self.number_format else "float32"
        layout = Coded(code="float8_e4m3", group=self.columns, scale=scale, shares_scale_rows=True)
        return layout, (filled.tensors["weight"].view(torch.uint8), scales, scale_rows(filled, self.rows))


class Scheme(formats.Scheme):
    """quant_method "fp8" of config.json."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        config = source.config
        written = settings.word(config, "fmt", "e4m3")
        if written not in ("e4m3", "float8_e4m3fn"):
            raise ConfigError(f"quantization_config: fmt {written!r} is not e4m3", "octavo reads fp8 checkpoints of e4m3")
        self._block = settings.block(config, "weight_block_size")
        activations = settings.word(config, "activation_scheme", "dynamic")
        if activations not in ("static", "dynamic"):
            raise settings.wrong("activation_scheme", activations, "static or dynamic")
        self._static = activations == "static"
        self._plain = settings.names(config, "modules_to_not_convert", "ignored_layers")
        self._number_format = source.number_format

    def weight(self, path: str, role: Role) -> formats.Format:
        if role in ("embedding", "head", "router") or named(path, self._plain):
            return unquantized.Format(self.dtype)
        if self._block is None:
            return PerTensor(self._static)
        is_ue8m0 = self._number_format(f"{path}.weight_scale_inv") == "F8_E8M0"
        return Blockwise(self._block[0], self._block[1], "F8_E8M0" if is_ue8m0 else None)
