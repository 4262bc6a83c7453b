"""ModelScope: a model's files through the package modelscope, where OCTAVO_USE_MODELSCOPE asks for it instead of the Hugging Face hub."""

from pathlib import Path

from octavo.checkpoint import hub
from octavo.errors import ConfigError, ModelNotFoundError


def fetch(wanted: hub.Wanted, *, download_dir: str | Path | None = None, offline: bool = False) -> Path:
    """The local folder, or the .gguf file, of a model on ModelScope; downloads what its cache lacks.

    Raises ConfigError if the package is not installed, ModelNotFoundError if ModelScope does not give the model.
    """
    try:
        from modelscope.hub.snapshot_download import snapshot_download
    except ImportError:
        raise ConfigError(
            "OCTAVO_USE_MODELSCOPE is set, and the package modelscope is not installed",
            "pip install 'octavo[modelscope]', or unset it to fetch from the Hugging Face hub",
        ) from None
    allow = [f"*{wanted.quantization}*.gguf" if wanted.quantization else wanted.file] if wanted.wants_gguf else [*hub.ALLOW, "*.gguf"]
    where = None if download_dir is None else str(download_dir)
    try:
        folder = snapshot_download(
            wanted.repo,
            revision=wanted.revision,
            cache_dir=where,
            local_files_only=offline,
            allow_patterns=allow,
            ignore_patterns=[*hub.IGNORE, *wanted.ignore],
        )
    except Exception as error:  # the package has no base class of its own
        raise ModelNotFoundError(
            f"ModelScope does not give {wanted.repo}: {error or type(error).__name__}",
            "check the name and the network; unset OCTAVO_USE_MODELSCOPE to ask the Hugging Face hub",
        ) from None
    return hub.pick(Path(folder), wanted, ModelNotFoundError(f"{wanted.repo} on ModelScope has no safetensors and no GGUF files"))
