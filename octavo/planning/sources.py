"""Sources: where a model's config.json is, without its weights: its folder, the published ones that come with octavo, or the hub."""

import json
from functools import cache
from pathlib import Path

from octavo.checkpoint import catalog
from octavo.checkpoint import source as sources
from octavo.checkpoint.source import Source
from octavo.config.options import Options

_KNOWN = Path(__file__).with_name("known")


def find(options: Options) -> Source:
    """Sets load_format to "dummy" where there are no weights, whose sizes then follow from the configuration alone.

    Raises ModelNotFoundError.
    """
    local = Path(options.model).expanduser()
    if local.name == "config.json" and local.is_file():
        found = Source("folder", local.parent, options.model)
    elif local.exists() or catalog.find(options.model) is not None:
        found = sources.resolve(options.model, download_dir=options.download_dir, token=options.hf_token)
    elif (folder := known().get(key(options.model))) is not None:
        found = Source("folder", folder, options.model)
    else:
        found = sources.resolve_config(options.model, download_dir=options.download_dir, token=options.hf_token)
    if found.kind == "folder" and not any(found.path.glob("*.safetensors")):
        options.load_format = "dummy"
    return found


@cache
def known() -> dict[str, Path]:
    """The published configurations that come with octavo, under every name of theirs."""
    names: dict[str, list[str]] = json.loads((_KNOWN / "names.json").read_text(encoding="utf-8"))
    return {key(name): _KNOWN / folder for folder, all_names in names.items() for name in all_names}


def key(name: str) -> str:
    """Hub ids are compared without their organization, in any case."""
    return name.rpartition("/")[2].lower()
