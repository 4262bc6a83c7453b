"""AWQ: 4 bit integers in groups along the columns, packed eight to a word across the rows, in an order of their own.

Source: the "gemm" version of AutoAWQ's checkpoints. number = (q - zero) * scale.
"""

from dataclasses import dataclass

import torch

from octavo.errors import ConfigError
from octavo.ops.weights import SCALES, Coded, Layout, Tensors, pack_codes
from octavo.quant import format as formats
from octavo.quant import settings
from octavo.quant.format import COLUMNS, ROWS, Axis, Field, Filled, Role, Source
from octavo.quant.packed import nibbles
from octavo.quant.scales import stored_scale
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Format:
    """group: columns that share a scale. scale: the format of scales, a key of SCALES."""

    group: int
    scale: str

    @property
    def fields(self) -> tuple[Field, ...]:
        words, groups = Axis("rows", 8), Axis("columns", self.group)
        return (
            Field("qweight", (COLUMNS, words), torch.int32, "I32"),
            Field("qzeros", (groups, words), torch.int32, "I32"),
            Field("scales", (groups, ROWS), SCALES[self.scale], must_be="finite"),
        )

    @property
    def can_join(self) -> bool:
        return True

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        codes, zeros = (nibbles(filled.tensors[name], _ORDER).t() for name in ("qweight", "qzeros"))
        scales = filled.tensors["scales"].t().contiguous()
        return Coded(code="uint4", group=self.group, scale=self.scale, has_zeros=True), (pack_codes(codes, 4), scales, zeros.contiguous())


class Scheme(formats.Scheme):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        config = source.config
        bits = settings.whole(config, "bits" if "bits" in config else "w_bit", 4)
        version = settings.word(config, "version", "gemm").lower()
        if bits != 4 or version != "gemm":
            raise ConfigError(f"awq with {bits} bits in version {version!r} is not read here", "octavo reads awq of 4 bits in version gemm")
        self._group = settings.whole(config, "group_size" if "group_size" in config else "q_group_size", 128)
        self._number_format = source.number_format
        self._plain = settings.names(config, "modules_to_not_convert")

    def weight(self, path: str, role: Role) -> formats.Format:
        if role in ("embedding", "head", "router") or named(path, self._plain):
            return unquantized.Format(self.dtype)
        return Format(self._group, stored_scale(self._number_format(f"{path}.scales"), "float16"))
