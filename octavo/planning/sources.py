"""Sources: where a model's config.json is, without its weights: its folder, the published ones that come with octavo, or the hub."""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from octavo import plugins
from octavo.checkpoint import catalog, hf_config
from octavo.checkpoint import source as sources
from octavo.checkpoint.source import Source
from octavo.config.options import Options
from octavo.errors import ModelNotFoundError, UnsupportedModelError
from octavo.planning import families

_KNOWN = Path(__file__).with_name("known")
_NOT_BUILT = "octavo does not build that yet"


def find(options: Options) -> Source:
    """Sets load_format to "dummy" where there are no weights, whose sizes then follow from the configuration alone.

    A published checkpoint of a number format has its quantization_config laid over the plain configuration. Raises ModelNotFoundError, or
    UnsupportedModelError for a model whose architecture is not built, also where its configuration cannot be fetched.
    """
    local = Path(options.model).expanduser()
    if local.name == "config.json" and local.is_file():
        found = Source("folder", local.parent, options.model)
    elif local.exists() or catalog.find(options.model) is not None:
        found = sources.resolve(options.model, download_dir=options.download_dir, token=options.hf_token)
    elif (published := known().get(key(options.model))) is not None:
        found = Source("folder", published.folder, options.model)
        if published.number_format is not None and "quantization_config" not in options.hf_overrides:
            options.hf_overrides = options.hf_overrides | {"quantization_config": number_formats()[published.number_format]}
    else:
        found = _fetch(options)
    _check(options.model, found)
    if found.kind == "folder" and not any(found.path.glob("*.safetensors")):
        options.load_format = "dummy"
    return found


class Published(NamedTuple):
    """A configuration that comes with octavo. number_format: of the checkpoint, one of number_formats(); None: plain numbers."""

    folder: Path
    number_format: str | None


@cache
def known() -> dict[str, Published]:
    """The published configurations that come with octavo, under every name of theirs."""
    names: dict[str, list[str]] = _read("names.json")
    result: dict[str, Published] = {}
    for what, all_names in names.items():
        folder, _, number_format = what.partition(" ")
        result |= {key(name): Published(_KNOWN / folder, number_format or None) for name in all_names}
    return result


@cache
def number_formats() -> dict[str, dict[str, Any]]:
    """What published checkpoints have as their quantization_config."""
    found: dict[str, dict[str, Any]] = _read("formats.json")
    return found


def _fetch(options: Options) -> Source:
    """The hub's config.json; where there is none to be had, what the name tells is told too."""
    try:
        return sources.resolve_config(options.model, download_dir=options.download_dir, token=options.hf_token)
    except ModelNotFoundError as error:
        family = families.of_name(options.model)
        if family is None:
            raise
        fact = f"{options.model} waits for {family.told}: {_NOT_BUILT} (nor is its configuration here: {error.fact})"
        raise UnsupportedModelError(fact, families.hint()) from None


def _check(model: str, found: Source) -> None:
    """Raises UnsupportedModelError for an architecture that is not built, by its name."""
    if found.kind != "folder":
        return
    stored, _ = hf_config.read(found)
    family = families.of_config(stored)
    if family is not None and stored.get("model_type") not in plugins.names("models"):
        raise UnsupportedModelError(f"{model} waits for {family.told}: {_NOT_BUILT}", families.hint())


def _read(name: str) -> Any:
    return json.loads((_KNOWN / name).read_text(encoding="utf-8"))


def key(name: str) -> str:
    """Hub ids are compared without their organization, in any case."""
    return name.rpartition("/")[2].lower()
