"""Tiny checkpoints in a number format, written tensor by tensor, with the numbers that they mean; and what every format must pass."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file, save_file

from octavo.checkpoint import index as checkpoint_index
from octavo.config.config import Config
from octavo.layers.stored import stored_parameters
from octavo.layers.weight import Weight
from octavo.loading.build import bare, build_meta
from octavo.loading.fill import Fill
from octavo.loading.finish import resident_bytes
from octavo.ops.weights import Coded, Dense, decode
from octavo.parallel.cut import Group
from tests.models import oracle
from tests.models.driver import Driver, config_for
from tests.tolerances import ATOL, RTOL

# wide enough for groups of 32 to be cut in 4
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
TOKENS = [3, 17, 200, 45, 9, 110, 64, 2, 77, 130, 31]

# a linear weight's path (without .weight) and numbers -> the tensors that stand for it, by what comes after the path, and the numbers they
# mean; None: it stays as it is
Encode = Callable[[str, torch.Tensor], tuple[dict[str, torch.Tensor], torch.Tensor] | None]


@dataclass(frozen=True, slots=True)
class Written:
    """A checkpoint. numbers: of every matrix that it holds, float32, by path; plain: a folder that holds the same numbers plainly."""

    folder: Path
    plain: Path
    numbers: Mapping[str, torch.Tensor]


def write(folder: Path, encode: Encode, quantization: dict[str, Any] | None, model_type: str = "llama", **changes: Any) -> Written:
    """A tiny model of `model_type` whose linear layers are encoded."""
    source = oracle.save(oracle.make(model_type, SIZES | changes), folder / "source")
    config = json.loads((source / "config.json").read_text())
    tensors: dict[str, torch.Tensor] = {}
    for file in source.glob("*.safetensors"):
        tensors |= load_file(file)
    stored, plain, numbers = {}, {}, {}
    for name, tensor in tensors.items():
        path = name.removesuffix(".weight")
        is_linear = tensor.dim() == 2 and "embed" not in name and "lm_head" not in name and ".gate.weight" not in name
        encoded = encode(path, tensor) if is_linear else None
        if encoded is None:
            stored[name] = plain[name] = tensor
            if tensor.dim() == 2:
                numbers[path] = tensor
            continue
        for suffix, value in encoded[0].items():
            stored[f"{path}.{suffix}"] = value.contiguous()
        plain[name] = numbers[path] = encoded[1]
    changed = config if quantization is None else config | {"quantization_config": quantization}
    return Written(_save(folder / "coded", stored, changed), _save(folder / "plain", plain, config), numbers)


def _save(folder: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def configured(
    written: Path, scheme: str | None, dtype: str = "float32", mode: str = "fast", load_format: str = "safetensors", **changes: Any
) -> Config:
    """What resolve() would make of a checkpoint in `scheme`."""
    config = config_for(written, dtype=dtype, mode=mode, load_format=load_format, **changes)
    return msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, quantization=scheme))


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The numbers of every coded weight of a finished model, float32, by the path of each part."""
    found: dict[str, torch.Tensor] = {}
    for module in model.modules():
        if not isinstance(module, Weight) or isinstance(module.layout, Dense) or module.layout is None:
            continue
        count = len(module.layout.names) if isinstance(module.layout, Coded) else 1  # an input scale may follow
        numbers = decode(module.layout, tuple(module.tensors)[:count], module.num_rows, module.columns)
        for piece, part in zip(module.pieces, numbers.split(list(module.rows)), strict=True):
            found[piece.path] = part
    return found


def check(written: Written, scheme: str | None, *, num_coded: int | None = None) -> None:
    """Numbers bit for bit, logits within the tolerance, a row alone as in a batch, planned bytes as loaded."""
    for dtype in ("float32", "bfloat16"):
        # the fast implementations keep weights in an order of their own
        coded = weights_of(Driver(configured(written.folder, scheme, dtype, mode="reference")).model)
        assert coded, "nothing is coded"
        assert num_coded is None or len(coded) == num_coded
        for path, numbers in coded.items():
            assert torch.equal(numbers, written.numbers[path].float()), path
        ours = Driver(configured(written.folder, scheme, dtype))
        plain = Driver(configured(written.plain, None, dtype))
        logits = ours.step([(ours.sequence(), TOKENS)])[0]
        expected = plain.step([(plain.sequence(), TOKENS)])[0]
        torch.testing.assert_close(logits, expected, atol=ATOL[dtype], rtol=RTOL[dtype])
        together = ours.step([(ours.sequence(), TOKENS[:3]), (ours.sequence(), TOKENS), (ours.sequence(), TOKENS[4:])])[1]
        assert torch.equal(together, logits)
        planned = build_meta(ours.config)
        assert planned.weights_bytes == ours.built.weights_bytes == resident_bytes(ours.model)


def check_cuts(written: Written, scheme: str | None) -> None:
    """Each rank's piece of 2 and of 4 holds the numbers of the whole that are its, on packed bytes."""
    config = configured(written.folder, scheme)
    for size in (2, 4):
        for rank in range(size):
            sizes = {path: tuple(stored.target.shape) for path, stored in _stored(bare(config, Group(rank, size))).items()}
            model = cut_model(config, Group(rank, size))
            assert sizes == model.shapes
            for path, numbers in weights_of(model.model).items():
                assert torch.equal(numbers, _piece(written.numbers[path].float(), numbers.shape, rank)), (path, rank, size)


@dataclass(slots=True)
class CutModel:
    model: torch.nn.Module
    shapes: dict[str, tuple[int, ...]]


def cut_model(config: Config, group: Group) -> CutModel:
    """One rank's model, filled and finished on plain references."""
    from octavo.layers.choices import Choices
    from octavo.loading.build import _scheme
    from octavo.loading.finish import finish
    from octavo.loading.quantize import quantize

    model = bare(config, group)
    quantize(model, _scheme(config, model), torch.device("cpu"))
    with Fill(checkpoint_index.read(config.model.path), model.names) as fill:
        fill.check(stored_parameters(model))
        fill.fill(stored_parameters(model))
        fill.finish()
    shapes = {path: tuple(stored.target.shape) for path, stored in _stored(model).items()}
    finish(model, Choices(torch.float32, mode="reference"))
    return CutModel(model, shapes)


def _stored(model: torch.nn.Module) -> dict[str, Any]:
    return {stored.path: stored for stored in stored_parameters(model)}


def _piece(whole: torch.Tensor, shape: torch.Size, rank: int) -> torch.Tensor:
    """The rank's run of the one axis that is cut."""
    for axis, (extent, length) in enumerate(zip(whole.shape, shape, strict=True)):
        if extent != length:
            return whole.narrow(axis, rank * length, length)
    return whole
