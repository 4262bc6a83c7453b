"""int8 activations: int8 weights of a checkpoint whose products have inputs in int8 too, with scales by token, or from the checkpoint.

octavo/ops/linear.py states the arithmetic. Each part of a fused layer keeps the input scale that it has on disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from octavo.errors import ConfigError
from octavo.ops.linear import INT8, INT8_GROUP, Activation
from octavo.ops.weights import Coded, Layout, Tensors, scale_values
from octavo.quant import eight_bit, settings
from octavo.quant.format import Axis, Field, Filled


@dataclass(frozen=True, slots=True)
class Format:
    """weight: how the weight is stored; it has int8 codes and a scale for each row. input_scale: where the checkpoint has it."""

    weight: eight_bit.Format
    activation: Activation
    input_scale: str = "input_scale"

    @property
    def fields(self) -> tuple[Field, ...]:
        stored = self.weight.fields
        if self.activation != "int8_static":
            return stored
        scale = Field(self.input_scale, (Axis(None),), torch.float32, is_flat=True, must_be="positive")
        return (*(field for field in stored if field.name != self.input_scale), scale)

    @property
    def can_join(self) -> bool:
        return self.weight.can_join and self.activation != "int8_static"

    def finish(self, filled: Filled) -> tuple[Layout, Tensors]:
        layout, (codes, scales) = self.weight.finish(filled)
        assert isinstance(layout, Coded)
        assert (layout.code, layout.group) == (INT8.code, INT8.group)
        tensors = (codes, scale_values(layout.scale, scales).contiguous())
        if self.activation != "int8_static":
            return INT8, tensors
        return INT8, (*tensors, filled.tensors[self.input_scale].reshape(-1))


def multiplies(weight: eight_bit.Format) -> bool:
    """Whether weights so stored can be multiplied with int8 activations."""
    return weight.number_format == "I8" and not weight.group and weight.zero_name is None and "block" not in weight.shared


def of_config(path: str, config: Mapping[str, Any]) -> Activation | None:
    """What `input_activations` of compressed-tensors asks for; None: not int8. Raises ConfigError for int8 that octavo cannot do."""
    bits, kind = settings.whole(config, "num_bits", 8), settings.word(config, "type", "int")
    if (bits, kind) != (8, "int"):
        return None
    strategy, dynamic = settings.word(config, "strategy", "tensor"), config.get("dynamic", False)
    is_dynamic = dynamic in (True, "local")
    if not settings.switch(config, "symmetric", True):
        raise ConfigError(
            f"quantization_config: {path} has asymmetric int8 activations (with a zero point), which octavo does not multiply with",
            "octavo does symmetric ones; quantize the plain checkpoint with octavo quantize --scheme int8",
        )
    if (strategy, is_dynamic) == ("token", True):
        return "int8_token"
    if (strategy, is_dynamic) == ("group", True) and config.get("group_size") == INT8_GROUP:
        return "int8_group"
    if (strategy, is_dynamic) == ("tensor", False):
        return "int8_static"
    raise ConfigError(
        f"quantization_config: {path} has {'dynamic' if is_dynamic else 'static'} int8 activations by {strategy}, "
        "which octavo does not multiply with",
        f"octavo does dynamic ones by token or by groups of {INT8_GROUP}, whose bits do not depend on the batch, and static ones by tensor",
    )
