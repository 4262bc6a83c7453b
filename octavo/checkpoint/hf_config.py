"""config.json and generation_config.json of a model; for a GGUF file the same words, derived from its header."""

import json
from pathlib import Path
from typing import Any

from octavo.checkpoint import gguf, gguf_config
from octavo.checkpoint.source import Source
from octavo.errors import CheckpointError


def read(source: Source | str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(config, generation_config) as dictionaries; the second is empty if there is none.

    Raises CheckpointError if config.json is missing or no JSON object, UnsupportedModelError for a GGUF architecture without a table.
    """
    path = source.path if isinstance(source, Source) else Path(source)
    if not path.is_dir():
        header = gguf.read_header(path)
        return gguf_config.config(header), gguf_config.generation_config(header)
    config = _read_json(path / "config.json")
    if config is None:
        raise CheckpointError(f"{path} has no config.json", "a model's folder needs one beside its weights")
    if "compression_config" in config:  # what compressed-tensors' key was called at first
        config.setdefault("quantization_config", {"quant_method": "compressed-tensors"} | (config.pop("compression_config") or {}))
    beside = _read_json(path / "hf_quant_config.json")
    if beside is not None and not config.get("quantization_config"):  # modelopt's, where config.json does not repeat it
        config["quantization_config"] = {"quant_method": "modelopt"} | beside
    return config, _read_json(path / "generation_config.json") or {}


def _read_json(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds no JSON object")
    return content
