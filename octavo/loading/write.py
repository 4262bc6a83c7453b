"""Write: a plain checkpoint is read parameter by parameter, quantized, and written as compressed-tensors beside its other files.

Nothing is ever there as a whole: a parameter is read, coded and put into the shard that is being filled. The folder appears when it is
complete, or not at all.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from octavo.checkpoint import index as checkpoint_index
from octavo.config.config import Config
from octavo.errors import ConfigError
from octavo.layers.decoder import CausalLM
from octavo.layers.stored import Stored, stored_parameters
from octavo.loading.build import bare, model_dtype
from octavo.loading.fill import Fill, Progress
from octavo.loading.quantize import quantize
from octavo.quant.format import Role, Source
from octavo.quant.schemes import unquantized
from octavo.quant.written import SCHEMES, Written

SHARD_BYTES = 2 * 10**9
# what holds weights, or says where they are: everything else is copied
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".safetensors.index.json", ".bin.index.json")


@dataclass(frozen=True, slots=True)
class Done:
    """How much was read and written, and how many weights are coded."""

    read_bytes: int
    written_bytes: int
    num_coded: int
    num_plain: int


class _Roles(unquantized.Scheme):
    """A plain scheme that notes what each weight is for."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.roles: dict[str, Role] = {}

    def weight(self, path: str, role: Role) -> unquantized.Format:
        self.roles[path] = role
        return super().weight(path, role)


def write(config: Config, destination: str, scheme: str, group_size: int | None = None, progress: Progress | None = None) -> Done:
    """Quantize the checkpoint of `config` into the folder `destination`.

    Raises ConfigError for a scheme that cannot be written, a source that is not plain, or a destination that is there already.
    """
    source, target = Path(config.model.path), Path(destination).expanduser()
    made = _made(scheme)
    if group_size is not None and not made.group:
        raise ConfigError(f"--group-size is not for --scheme {scheme}", "int4 has groups")
    group = group_size or made.group
    if not source.is_dir() or config.model.quantization is not None:
        stored = config.model.quantization or "GGUF"
        raise ConfigError(f"{source} is in {stored}", "octavo quantize reads plain safetensors checkpoints, of which no number is lost yet")
    if target.exists():
        raise ConfigError(f"{target} is there already", "name a folder that is not")
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        done = _write_all(config, partial, made, group, progress)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return done


def _made(scheme: str) -> Written:
    name = scheme.lower().replace("-", "_")
    if name not in SCHEMES:
        raise ConfigError(f"octavo quantize cannot write {scheme!r}", f"it writes {', '.join(SCHEMES)}")
    return SCHEMES[name]


def _write_all(config: Config, folder: Path, made: Written, group: int, progress: Progress | None) -> Done:
    source = Path(config.model.path)
    model, dtype = bare(config), model_dtype(config)
    noted = _Roles(Source(dtype))
    quantize(model, noted, torch.device("meta"))
    index = checkpoint_index.read(source)
    shards, num_coded, num_plain = _Shards(folder), 0, 0
    with Fill(index, model.names, progress) as fill:
        stored = list(stored_parameters(model))
        fill.check(stored)
        for one in stored:
            tensor = torch.empty(one.shape, dtype=dtype)
            fill.fill([Stored(one.path, one.shape, tensor)])
            path = one.path.removesuffix(".weight")
            if path != one.path and noted.roles.get(path) in ("linear", "expert"):
                shards.add({f"{path}.{name}": value for name, value in made.encode(path, tensor, group).items()})
                num_coded += 1
            else:
                shards.add({one.path: tensor})
                num_plain += 1
        fill.finish()
    shards.finish()
    for file in _others(source):
        shutil.copyfile(file, folder / file.name)
    words = json.loads((source / "config.json").read_text(encoding="utf-8"))
    words["quantization_config"] = made.config(_plain(model, noted.roles), group)
    (folder / "config.json").write_text(json.dumps(words, indent=2) + "\n", encoding="utf-8")
    return Done(index.total_bytes, shards.total_bytes, num_coded, num_plain)


def _plain(model: CausalLM, roles: dict[str, Role]) -> list[str]:
    """What the config must tell readers to leave as it is: layers that are linear ones by their class."""
    return sorted({"lm_head", *(path for path, role in roles.items() if role in ("head", "router"))})


def _others(source: Path) -> Iterator[Path]:
    """The tokenizer, templates, generation settings, licence."""
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name != "config.json" and not file.name.endswith(_WEIGHTS):
            yield file


class _Shards:
    """Safetensors files of a bounded size; several have an index."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now: dict[str, torch.Tensor] = {}
        self._names: list[list[str]] = []
        self._bytes = self.total_bytes = 0

    def add(self, tensors: dict[str, torch.Tensor]) -> None:
        """Tensors that belong together stay in one file."""
        size = sum(tensor.nbytes for tensor in tensors.values())
        if self._now and self._bytes + size > SHARD_BYTES:
            self._flush()
        self._now |= tensors
        self._bytes += size
        self.total_bytes += size

    def finish(self) -> None:
        self._flush()
        count = len(self._names)
        files = ["model.safetensors"] if count == 1 else [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
        for number, file in enumerate(files):
            (self._folder / f"{number}.part").rename(self._folder / file)
        if count > 1:
            places = {name: file for file, names in zip(files, self._names, strict=True) for name in names}
            index = {"metadata": {"total_size": self.total_bytes}, "weight_map": dict(sorted(places.items()))}
            (self._folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")

    def _flush(self) -> None:
        whole = {name: tensor.contiguous() for name, tensor in self._now.items()}
        save_file(whole, self._folder / f"{len(self._names)}.part", {"format": "pt"})
        self._names.append(list(self._now))
        self._now, self._bytes = {}, 0
