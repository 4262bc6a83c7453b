"""Write: a plain checkpoint is read piece by piece, quantized, and written, as compressed-tensors beside its other files or as GGUF.

Nothing is ever there as a whole: a parameter is read, coded and put into the file that is being filled. The folder, or the file, appears
when it is complete, or not at all.
"""

import difflib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from octavo.config.config import Config
from octavo.errors import ConfigError
from octavo.layers.stored import Stored
from octavo.loading import write_gguf
from octavo.loading.fill import Fill, Progress
from octavo.loading.plain import Done, Plain, read_plain
from octavo.quant.calibration import Felt
from octavo.quant.written import SCHEMES, Written

SHARD_BYTES = 2 * 10**9
# what holds weights, or says where they are: everything else is copied
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".safetensors.index.json", ".bin.index.json")


def write(
    config: Config,
    destination: str,
    scheme: str,
    group_size: int | None = None,
    calibrate: Callable[[], Mapping[str, Felt]] | None = None,
    progress: Progress | None = None,
) -> Done:
    """Quantize the checkpoint of `config` into the folder, or for the schemes of GGUF the .gguf file, `destination`.

    calibrate: asked for what went into each weight, once all else is known to be right. Raises ConfigError for a scheme that cannot be
    written, a source that is not plain, a destination that is there already or cannot be written.
    """
    source, target = Path(config.model.path), Path(destination).expanduser()
    name = check(scheme, target, group_size, calibrate is not None)
    plain = read_plain(config)
    if name in SCHEMES and not source.is_dir():
        raise ConfigError(
            f"{source} is a GGUF file, and --scheme {scheme} writes a folder with the files beside the weights, which it lacks",
            f"use one of GGUF's: {', '.join(write_gguf.SCHEMES)}",
        )
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        whole = partial if name in SCHEMES else partial / "whole"
        felt = calibrate() if calibrate is not None else {}
        if name in SCHEMES:
            done = _write_folder(plain, source, partial, SCHEMES[name], group_size or SCHEMES[name].group, felt, progress)
        else:
            importance = {path: one.mean_square for path, one in felt.items()}
            done = write_gguf.write(config, plain, whole, name, importance, progress)
        whole.rename(target)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{target} cannot be written: {error}", "nothing of it was kept") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return done


def check(scheme: str, target: Path, group_size: int | None = None, is_calibrated: bool = False) -> str:
    """The scheme as it is called here. Raises ConfigError for one that cannot be written, so, there."""
    known = [*SCHEMES, *write_gguf.SCHEMES]
    name = scheme.lower().replace("-", "_")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise ConfigError(
            f"octavo quantize cannot write {scheme!r}", f"{f'did you mean {near[0]}? ' if near else ''}it writes {', '.join(known)}"
        )
    written = SCHEMES.get(name)
    if group_size is not None and (written is None or not written.group):
        raise ConfigError(f"--group-size is not for --scheme {scheme}", "int4 has groups")
    if written is not None and written.needs_calibration and not is_calibrated:
        raise ConfigError(f"--scheme {scheme} needs --calibration FILE", "a text like those that the model will see")
    if is_calibrated and not (written.needs_calibration if written is not None else name in write_gguf.CALIBRATED):
        takers = [*(one for one in SCHEMES if SCHEMES[one].needs_calibration), *write_gguf.CALIBRATED]
        raise ConfigError(f"--calibration is not for --scheme {scheme}", f"it is for {', '.join(takers)}")
    if written is None and target.suffix != ".gguf":
        raise ConfigError(f"--scheme {scheme} writes one GGUF file, and {target} is no name for one", f"name it {target}.gguf")
    if os.path.lexists(target):
        raise ConfigError(f"{target} is there already", "name a folder or file that is not")
    return name


def _write_folder(
    plain: Plain, source: Path, folder: Path, made: Written, group: int, felt: Mapping[str, Felt], progress: Progress | None
) -> Done:
    shards, num_coded, num_plain = _Shards(folder), 0, 0
    with Fill(plain.index, plain.model.names, progress) as fill:
        fill.check(plain.stored)
        for one in plain.stored:
            tensor = torch.empty(one.shape, dtype=plain.dtype)
            fill.fill([Stored(one.path, one.shape, tensor, default=one.default, is_flat=one.is_flat)])
            path = one.path.removesuffix(".weight")
            if plain.role(one.path) in ("linear", "expert"):
                shards.add({f"{path}.{name}": value for name, value in made.encode(path, tensor, group, felt.get(path)).items()})
                num_coded += 1
            elif fill.is_stored(one.path):
                shards.add({one.path: tensor})
                num_plain += 1
        fill.finish()
    shards.finish()
    for file in _others(source):
        shutil.copyfile(file, folder / file.name)
    words = json.loads((source / "config.json").read_text(encoding="utf-8"))
    words["quantization_config"] = made.config(_left_plain(plain), group)
    (folder / "config.json").write_text(json.dumps(words, indent=2) + "\n", encoding="utf-8")
    return Done(plain.index.total_bytes, shards.total_bytes, num_coded, num_plain)


def _left_plain(plain: Plain) -> list[str]:
    """What the config must tell readers to leave as it is: layers that are linear ones by their class."""
    return sorted({"lm_head", *(path for path, role in plain.roles.items() if role in ("head", "router"))})


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
