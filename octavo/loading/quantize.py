"""Quantize: every layer gets the stored parameters that the checkpoint's scheme wants, uninitialized."""

import torch
from torch import nn

from octavo import plugins
from octavo.errors import UnsupportedModelError
from octavo.layers.stored import Layer
from octavo.quant.format import Scheme, Source


def scheme(name: str | None, source: Source) -> Scheme:
    """The scheme of a checkpoint. Raises UnsupportedModelError if there is none of that name."""
    try:
        return plugins.load("quant.schemes", name or "unquantized").Scheme(source)  # type: ignore[no-any-return]
    except plugins.UnknownNameError as error:
        raise UnsupportedModelError(f"quantization {name!r} is not supported", error.hint) from error


def quantize(module: nn.Module, scheme: Scheme, device: torch.device, prefix: str = "") -> None:
    """Create the stored parameters of a model, or of the piece of one that is called `prefix` in it, on `device`; on the meta device
    first, to know what there will be.
    """
    layers = [(path, layer) for path, layer in module.named_modules(prefix=prefix) if isinstance(layer, Layer)]
    for path, layer in layers:  # a list: layers make modules
        layer.create(scheme, device, path)
