"""Quantize: every layer gets the stored parameters that its scheme wants, uninitialized."""

import torch
from torch import nn

from octavo import plugins
from octavo.errors import UnsupportedModelError
from octavo.layers.stored import Layer
from octavo.quant.unquantized import Scheme


def scheme(name: str | None, dtype: torch.dtype) -> Scheme:
    """The scheme of a checkpoint. Raises UnsupportedModelError if there is none of that name."""
    try:
        return plugins.load("quant", name or "unquantized").Scheme(dtype)  # type: ignore[no-any-return]
    except plugins.UnknownNameError as error:
        raise UnsupportedModelError(f"quantization {name!r} is not supported", error.hint) from error


def quantize(module: nn.Module, scheme: Scheme, device: torch.device) -> None:
    """Create the stored parameters of a model, or of a piece of one, on `device`; on the meta device first, to know what there will be."""
    for layer in module.modules():
        if isinstance(layer, Layer):
            layer.create(scheme, device)
