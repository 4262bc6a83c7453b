"""Build: a model from its files, in five passes over a model on the meta device: index, shard, quantize, fill, finish.

The first passes run over the whole model and touch no weight: what is wrong with the files, and how large the finished model is, is known
before anything is read. Then each piece (embedding, a layer, norm, head) is created, filled, finished and moved to its place before the
next one is begun, so that loading takes little more than the finished model.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from octavo import plugins
from octavo.checkpoint import index as checkpoint_index
from octavo.config.cache_formats import format_of_layer
from octavo.config.config import Config
from octavo.config.schema import check_model_type
from octavo.device.device import Device
from octavo.errors import ConfigError, MemoryPlanError
from octavo.layers.choices import Choices
from octavo.layers.decoder import CausalLM
from octavo.layers.stored import Layer, stored_parameters
from octavo.loading import dummy
from octavo.loading.fill import Fill
from octavo.loading.finish import Residence, finish, resident_bytes
from octavo.loading.number_formats import NumberFormats
from octavo.loading.quantize import quantize, scheme
from octavo.loading.shard import shard
from octavo.parallel.cut import Group
from octavo.quant.format import Scheme, Source

Progress = Callable[[int, int], None]  # bytes read, bytes in all


@dataclass(frozen=True, slots=True)
class Built:
    """A model that can run. choices: which implementation each op got. weights_bytes: what the model keeps, tables included."""

    model: CausalLM
    choices: dict[str, str]
    weights_bytes: int


def model_dtype(config: Config) -> torch.dtype:
    dtype = getattr(torch, config.model.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def bare(config: Config, group: Group | None = None) -> CausalLM:
    """The model on the meta device, cut for one rank, with parameters as the checkpoint stores them.

    Raises UnsupportedModelError for a model type or a configuration that octavo does not know.
    """
    check_model_type(config.model.model_type)
    module = plugins.load("models", config.model.model_type)
    parsed = module.Config.parse(
        config.model.hf_config, max_length=config.model.max_model_len or None, sliding=not config.model.disable_sliding_window
    )
    with torch.device("meta"):
        model: CausalLM = module.Model(parsed)
    shard(model, group or _group(config))
    quantize(model, _scheme(config, model), torch.device("meta"))
    for name, layer in model.attention_layers().items():
        number = next(int(part) for part in name.split(".") if part.isdecimal())
        layer.keep_in(format_of_layer(config.cache.dtype, config.model.dtype, config.cache.skipped_layers, number, layer.window > 0))
    return model


def build_meta(config: Config, device_kind: str = "cpu", group: Group | None = None) -> Built:
    """The finished model on the meta device: sizes are the real ones, nothing is read and nothing computed. group: None: as configured."""
    model = bare(config, group)
    choices = _choices(config, device_kind, dry=True)
    finish(model, choices)
    return Built(model, choices.told(), resident_bytes(model))


def build_kernels(config: Config, device_kind: str = "cpu") -> None:
    """Make the implementations that the model will run with, and with them their kernels. Nothing is read and nothing computed."""
    finish(bare(config), _choices(config, device_kind, dry=False))


def build(config: Config, device: Device, progress: Progress | None = None) -> Built:
    """The model with its weights, ready to run on `device`.

    Raises CheckpointError with a list of all that is wrong with the files, before any weight is read; UnsupportedModelError;
    MemoryPlanError where the weights do not fit in what is free.
    """
    model = bare(config)
    fill = _Dummy(config.model.seed) if config.model.load_format == "dummy" else _from_files(config, model, progress)
    weights_bytes = build_meta(config, device.kind).weights_bytes
    choices = _choices(config, device.kind, dry=False)
    stored_as = _scheme(config, model)
    with fill:
        fill.check(stored_parameters(model))
        residence = Residence(_allocate(device, weights_bytes))
        for path, piece in pieces(model):
            quantize(piece, stored_as, torch.device("cpu"), path)
            fill.fill(stored_parameters(piece, path))
            finish(piece, choices)
            residence.move_in(piece)
        fill.finish()
    return Built(model, choices.told(), weights_bytes)


def pieces(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts of a model that are filled one at a time: whatever stands beside its layers, and each layer."""
    for name, child in model.named_children():
        if isinstance(child, Layer):
            yield name, child
            continue
        for inner, part in child.named_children():
            if isinstance(part, nn.ModuleList):
                yield from ((f"{name}.{inner}.{number}", layer) for number, layer in enumerate(part))
            else:
                yield f"{name}.{inner}", part


class _Dummy:
    """Fills with random values what a checkpoint would have."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> "_Dummy":
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def check(self, stored: Any) -> None:
        """Nothing can be missing."""

    def fill(self, stored: Any) -> None:
        dummy.fill(stored, self._seed)

    def finish(self) -> None:
        """Nothing can be left over."""


def _scheme(config: Config, model: CausalLM) -> Scheme:
    """The scheme of the checkpoint's weights; its headers tell the number format of each, of which a GGUF file has its own."""
    settings = config.model.hf_config.get("quantization_config") or config.model.quantization_config
    is_plain = config.model.load_format == "safetensors" and config.model.quantization is None
    if config.model.load_format == "dummy" or is_plain:  # no header says anything that the scheme needs
        return scheme(config.model.quantization, Source(model_dtype(config), settings))
    found = NumberFormats(checkpoint_index.read(config.model.path), model.names)
    name = "gguf" if config.model.load_format == "gguf" else config.model.quantization
    return scheme(name, Source(model_dtype(config), settings, found, found.shape))


def _from_files(config: Config, model: CausalLM, progress: Progress | None) -> Fill:
    return Fill(checkpoint_index.read(config.model.path), model.names, progress)


def _group(config: Config) -> Group:
    size = config.parallel.tensor_parallel_size
    if size != 1:
        raise ConfigError(f"tensor parallel size {size} is not supported", "use 1: a model runs on one rank")
    return Group()


def _choices(config: Config, device_kind: str, dry: bool) -> Choices:
    return Choices(
        model_dtype(config),
        device=device_kind,
        mode=config.device.op_implementations,
        attention_backend=config.device.attention_backend,
        block_size=config.cache.block_size,
        dry=dry,
    )


def _allocate(device: Device, size_bytes: int) -> torch.Tensor:
    hint = "free memory, or use a smaller model or one in a smaller number format"
    available = device.available_bytes()
    if size_bytes > available:
        room = f"the {available / 2**30:.2f} GiB that are available on the {device.label}"
        raise MemoryPlanError(f"{size_bytes / 2**30:.2f} GiB of weights do not fit in {room}", hint)
    try:
        return device.allocate(size_bytes)
    except MemoryError as error:
        raise MemoryPlanError(f"{size_bytes / 2**30:.2f} GiB of weights do not fit: {error}", hint) from error
