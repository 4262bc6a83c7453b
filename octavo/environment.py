"""Environment: every variable that octavo reads, read here and nowhere else.

A variable is `OCTAVO_NAME`; `VLLM_NAME` is read as a fallback where vLLM has the same one.
"""

import os
from pathlib import Path


def read(name: str, default: str | None = None) -> str | None:
    """The value of OCTAVO_<name>, else VLLM_<name>, else `default`. An empty value counts as unset."""
    return os.environ.get(f"OCTAVO_{name}") or os.environ.get(f"VLLM_{name}") or default


def flag(name: str, default: bool = False) -> bool:
    """A switch: 1, true, yes, on (any case) are on; 0, false, no, off are off."""
    value = read(name)
    return default if value is None else value.strip().lower() in ("1", "true", "yes", "on")


def cache_root() -> Path:
    """Where octavo keeps what can be made again: compiled kernels, catalog models."""
    root = read("CACHE_ROOT")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) if root else Path(base) / "octavo"


def logging_level() -> str:
    return read("LOGGING_LEVEL", "INFO") or "INFO"


def allow_long_max_model_len() -> bool:
    """Let --max-model-len exceed what the model's configuration says."""
    return flag("ALLOW_LONG_MAX_MODEL_LEN")


def engine_ready_timeout_s() -> float:
    return float(read("ENGINE_READY_TIMEOUT_S", "600") or 600)


def in_one_process() -> bool:
    """VLLM_ENABLE_V1_MULTIPROCESSING=0: engine core and worker live in the caller's process."""
    return not flag("ENABLE_V1_MULTIPROCESSING", True)


def api_key() -> str | None:
    return read("API_KEY")


def max_num_sequences() -> int:
    """The largest n of one request."""
    return int(read("MAX_N_SEQUENCES", "16384") or 16384)


def max_stop_strings() -> int:
    """The largest number of stop strings that the server takes in one request."""
    return int(read("MAX_STOP_STRINGS", "4") or 4)


def log_stats_interval_s() -> float:
    return float(read("LOG_STATS_INTERVAL", "10") or 10)


def is_offline() -> bool:
    """HF_HUB_OFFLINE: nothing may be fetched."""
    return (os.environ.get("HF_HUB_OFFLINE") or "").strip().lower() in ("1", "true", "yes", "on")


def hub_cache() -> Path:
    """Where the Hugging Face cache keeps models: HF_HUB_CACHE, else $HF_HOME/hub."""
    explicit = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("HF_HOME") or Path(base) / "huggingface") / "hub"


def test_models() -> Path | None:
    """OCTAVO_TEST_MODELS: a folder of models that tests may use instead of fetching."""
    path = os.environ.get("OCTAVO_TEST_MODELS")
    return Path(path) if path else None
