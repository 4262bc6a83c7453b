"""Tokenizer: the one that counts a bench's tokens, of a folder, a file, a catalog name or a hub id. Weights are never fetched for it."""

import re
from pathlib import Path

from octavo import environment
from octavo.checkpoint import catalog, hub, source
from octavo.errors import ConfigError, OctavoError
from octavo.text.tokenizer import Tokenizer

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def load(name: str) -> Tokenizer:
    """Raises ConfigError, with what to pass, if there is none."""
    folder = Path(name).expanduser()
    try:
        if (folder / "tokenizer.json").is_file():  # a tokenizer alone is enough here
            return Tokenizer.from_folder(folder)
        if not folder.exists() and catalog.find(name) is None and _HUB_ID.fullmatch(name):
            return Tokenizer.from_folder(hub.fetch_tokenizer(name, offline=environment.is_offline()))
        return Tokenizer.load(source.resolve(name).path)
    except OctavoError as error:
        raise ConfigError(
            f"no tokenizer for {name!r}: {error.fact}",
            "pass --tokenizer with a folder, a .gguf file, a catalog name or a hub id; or --skip-tokenizer-init for custom prompts",
        ) from None
