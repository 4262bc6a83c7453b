"""Written: what `octavo quantize` makes of a weight, in the words of compressed-tensors: stored tensors, and what the config says of them.

The codes are those that the online schemes of the same name make, so that a written checkpoint runs as one quantized while it is loaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from octavo.errors import ConfigError
from octavo.ops.linear import INT8_GROUP
from octavo.ops.weights import pack_codes
from octavo.quant import online
from octavo.quant.calibration import Felt
from octavo.quant.format import Filled

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Written:
    """format, weights, activations: compressed-tensors' own words. encode: (path, weight, columns of a group, what went into the weight) ->
    tensors by their names.
    """

    format: str
    encode: Callable[[str, torch.Tensor, int, Felt | None], Tensors]
    weights: Mapping[str, Any]
    activations: Mapping[str, Any] | None = None
    group: int = field(default=0)  # columns that share a scale, where the user may say how many
    needs_calibration: bool = False

    def config(self, ignore: list[str], group: int) -> dict[str, Any]:
        """quantization_config of config.json."""
        weights = {"symmetric": True, "dynamic": False, **self.weights} | ({"group_size": group} if group else {})
        layers = {"targets": ["Linear"], "weights": weights, "input_activations": self.activations, "output_activations": None}
        return {
            "quant_method": "compressed-tensors",
            "quantization_status": "compressed",
            "format": self.format,
            "ignore": ignore,
            "config_groups": {"group_0": layers},
        }


def _int8(path: str, weight: torch.Tensor, group: int, felt: Felt | None) -> Tensors:
    _, (codes, scales) = online.int8_per_channel(_filled(path, weight), weight)
    return {"weight": codes.view(torch.int8), "weight_scale": scales}


def _static_int8(path: str, weight: torch.Tensor, group: int, felt: Felt | None) -> Tensors:
    """With the scale of inputs that makes the largest one of the calibration 127."""
    if felt is None:
        raise ConfigError(f"{path}: the calibration does not see what goes into it", "use --scheme int8, whose scales are found as it runs")
    scale = torch.tensor([felt.largest / 127 if felt.largest > 0 else 1.0])
    return _int8(path, weight, group, felt) | {"input_scale": scale}


def _packed_int8(path: str, weight: torch.Tensor, group: int, felt: Felt | None) -> Tensors:
    """The codes with half their range added, in words: how other readers expect weights whose activations stay plain."""
    rows, columns = weight.shape
    if columns % 4:
        raise ConfigError(f"{path}: its {columns} columns do not fill words of four", "use --scheme int8_token")
    _, (codes, scales) = online.int8_per_channel(_filled(path, weight), weight)
    return {"weight_packed": (codes ^ 128).view(torch.int32), "weight_scale": scales, "weight_shape": torch.tensor([rows, columns])}


def _fp8(path: str, weight: torch.Tensor, group: int, felt: Felt | None) -> Tensors:
    _, (codes, scales) = online.fp8_per_tensor(_filled(path, weight), weight)
    return {"weight": codes.view(torch.float8_e4m3fn), "weight_scale": scales[:1, 0].clone()}


def _int4(path: str, weight: torch.Tensor, group: int, felt: Felt | None) -> Tensors:
    """Symmetric, with a bfloat16 scale for each group: the least that keeps its largest number in -8 .. 7."""
    rows, columns = weight.shape
    if columns % group or columns % 8:
        raise ConfigError(f"{path}: its {columns} columns are not whole groups of {group}", "choose another --group-size")
    runs = weight.float().view(rows, -1, group)
    scales = torch.maximum(runs.amax(-1) / 7, -runs.amin(-1) / 8).to(torch.bfloat16)
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    codes = (runs / scales.float()[..., None]).round().clamp(-8, 7).add(8).to(torch.uint8)
    packed = pack_codes(codes.view(rows, columns), 4).view(torch.int32)
    return {"weight_packed": packed, "weight_scale": scales, "weight_shape": torch.tensor([rows, columns])}


def _filled(path: str, weight: torch.Tensor) -> Filled:
    return Filled(path, (weight.shape[0],), weight.shape[1], {"weight": weight})


_CHANNEL = {"num_bits": 8, "type": "int", "strategy": "channel"}
_INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": True}

# scheme, as users type it -> what is written
SCHEMES: dict[str, Written] = {
    "int8": Written("int-quantized", _int8, _CHANNEL, _INT8 | {"strategy": "group", "group_size": INT8_GROUP}),
    "int8_token": Written("int-quantized", _int8, _CHANNEL, _INT8 | {"strategy": "token"}),
    "int8_static": Written(
        "int-quantized", _static_int8, _CHANNEL, _INT8 | {"dynamic": False, "strategy": "tensor"}, needs_calibration=True
    ),
    "int8_per_channel_weight_only": Written("pack-quantized", _packed_int8, _CHANNEL),
    "fp8_per_tensor": Written("float-quantized", _fp8, {"num_bits": 8, "type": "float", "strategy": "tensor"}),
    "int4": Written("pack-quantized", _int4, {"num_bits": 4, "type": "int", "strategy": "group"}, group=online.INT4_GROUP),
}
