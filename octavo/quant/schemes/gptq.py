"""GPTQ: integers of 2, 3, 4 or 8 bits in groups along the columns, as a run of bits down them; with act-order each says its group.

Source: the checkpoints of AutoGPTQ and GPTQModel. number = (q - zero) * scale. The first format of such checkpoints stores zero - 1.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

from octavo.errors import CheckpointError, ConfigError
from octavo.ops.weights import SCALES, Coded, Layout, Tensors, unpack_codes
from octavo.quant import format as formats
from octavo.quant import settings
from octavo.quant.format import COLUMNS, ROWS, Axis, Field, Filled, Role, Source
from octavo.quant.packed import bits_of, check_groups
from octavo.quant.scales import stored_scale
from octavo.quant.schemes import unquantized
from octavo.quant.targets import named

_WORD = 32


@dataclass(frozen=True, slots=True)
class Format:
    """group: columns of a group, 0: all. adds_one: zeros are stored less one. is_ordered: columns are in the groups that g_idx says. scale:
    the format of scales, a key of SCALES.
    """

    bits: int
    group: int
    adds_one: bool
    is_ordered: bool
    has_indices: bool
    scale: str

    @property
    def fields(self) -> tuple[Field, ...]:
        # as few positions as fill whole words
        words, per = self.bits // math.gcd(self.bits, _WORD), _WORD // math.gcd(self.bits, _WORD)
        groups = Axis("all columns" if self.is_ordered else "columns", self.group) if self.group else Axis(None)
        fields = (
            Field("qweight", (Axis("columns", per, words), ROWS), torch.int32, "I32"),
            Field("qzeros", (groups, Axis("rows", per, words)), torch.int32, "I32"),
            Field("scales", (groups, ROWS), SCALES[self.scale], must_be="finite"),
        )
        return (*fields, Field("g_idx", (COLUMNS,), torch.int32, "I32")) if self.has_indices or self.is_ordered else fields

    @property
    def can_join(self) -> bool:
        return not self.is_ordered  # each part may have an order of its own

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        codes = bits_of(filled.tensors["qweight"].t())
        scales = filled.tensors["scales"].t().contiguous()
        # every part's zeros are whole words of their own
        zeros = unpack_codes(bits_of(filled.tensors["qzeros"]), self.bits, filled.num_rows)
        if self.adds_one:
            zeros = (zeros + 1) & (2**self.bits - 1)
        layout = Coded(
            code=f"uint{self.bits}",
            group=0 if self.is_ordered else self.group,
            scale=self.scale,
            has_zeros=True,
            has_column_groups=self.is_ordered,
        )
        tensors = (codes, scales, zeros.t().contiguous())
        if not self.has_indices and not self.is_ordered:
            return layout, tensors
        indices = filled.tensors["g_idx"]
        self._check(filled, indices, scales.shape[1])
        return layout, (*tensors, indices[0].contiguous()) if self.is_ordered else tensors

    def _check(self, filled: Filled, indices: torch.Tensor, num_groups: int) -> None:
        if indices.is_meta:
            return
        if self.is_ordered:
            check_groups(f"{filled.path}.g_idx", indices, num_groups)
        plain = torch.arange(filled.columns) // (self.group or filled.columns)
        if not self.is_ordered and not all(torch.equal(each - each[0], plain.to(each.dtype)) for each in indices):
            raise CheckpointError(
                f"{filled.path}.g_idx puts columns in an order of their own, and quantization_config says desc_act false",
                "set desc_act to true in quantization_config",
            )


class Scheme(formats.Scheme):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._config = source.config
        layout = settings.word(self._config, "checkpoint_format", "gptq")
        if layout not in ("gptq", "gptq_v2"):
            raise ConfigError(f"gptq in checkpoint_format {layout!r} is not read here", "octavo reads gptq and gptq_v2")
        self._adds_one = layout == "gptq"
        self._plain = settings.names(self._config, "modules_to_not_convert")
        self._rules = [(_rule(rule), rule.startswith("-:"), changes) for rule, changes in settings.tables(self._config, "dynamic").items()]
        self._number_format: Callable[[str], str | None] = source.number_format

    def weight(self, path: str, role: Role) -> formats.Format:
        config = dict(self._config)
        for rule, is_plain, changes in self._rules:
            if rule.match(path):
                if is_plain:
                    return unquantized.Format(self.dtype)
                config |= changes
        is_quantized_head = role == "head" and settings.switch(config, "lm_head", False)
        if (role in ("embedding", "head", "router") and not is_quantized_head) or named(path, self._plain):
            return unquantized.Format(self.dtype)
        bits, group = settings.whole(config, "bits"), settings.whole(config, "group_size", 128, least=-1)
        if bits not in (2, 3, 4, 8):
            raise ConfigError(f"gptq with {bits} bits is not read here", "octavo reads gptq of 2, 3, 4 and 8 bits")
        has_indices = self._number_format(f"{path}.g_idx") is not None
        is_ordered = settings.switch(config, "desc_act", False) and group > 0
        scale = stored_scale(self._number_format(f"{path}.scales"), "float16")
        return Format(bits, max(0, group), self._adds_one, is_ordered, has_indices, scale)


def _rule(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text.removeprefix("+:").removeprefix("-:"))
    except re.error as error:
        raise ConfigError(f"quantization_config: dynamic has {text!r}, no regular expression: {error}") from None
