"""Environment: every variable that octavo reads, read here and nowhere else.

A variable is `OCTAVO_NAME`; `VLLM_NAME` is read as a fallback where vLLM has the same one.
"""

import os
import re
import tempfile
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


def engine_pulse_timeout_s() -> float:
    """How long a process of the engine may give no sign of life before it is killed, and its clients told; 0 = for ever."""
    return float(read("ENGINE_PULSE_TIMEOUT_S", "20") or 20)


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


def keep_alive_on_engine_death() -> bool:
    """Let the server live on (answering 503) when the engine's process has died, instead of exiting with 1."""
    return flag("KEEP_ALIVE_ON_ENGINE_DEATH")


def http_timeout_keep_alive_s() -> int:
    """How long an idle HTTP connection is kept open."""
    return int(read("HTTP_TIMEOUT_KEEP_ALIVE", "5") or 5)


def http_max_request_body_size() -> int:
    """The largest request body in bytes; 0 = no limit."""
    return int(read("HTTP_MAX_REQUEST_BODY_SIZE", str(32 << 20)) or 0)


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


def runtime_root() -> Path:
    """Where processes of this user meet: XDG_RUNTIME_DIR, else the folder for temporary files."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())


def test_models() -> Path | None:
    """OCTAVO_TEST_MODELS: a folder of models that tests may use instead of fetching."""
    path = os.environ.get("OCTAVO_TEST_MODELS")
    return Path(path) if path else None


def prefix_hash_seed() -> str | None:
    """PYTHONHASHSEED, if it is a number: prefix cache keys are then equal in every process. None: keys that nobody can tell in advance."""
    seed = os.environ.get("PYTHONHASHSEED", "random")
    return None if seed == "random" or not seed else seed


def test_fixtures() -> Path | None:
    """OCTAVO_TEST_FIXTURES: a folder with the archives that tests would otherwise fetch."""
    path = os.environ.get("OCTAVO_TEST_FIXTURES")
    return Path(path) if path else None


def wants_color() -> bool:
    """Whether a terminal may get colours: not with NO_COLOR, nor where TERM says that it has none."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


_RELEVANT = (
    *("OCTAVO_", "VLLM_", "HF_", "HUGGINGFACE_", "OMP_", "GOMP_", "KMP_", "MKL_", "NUMBA_"),
    *("TORCH_", "CUDA_", "XDG_", "OTEL_", "PYTHON"),
)
_RELEVANT_NAMES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX", "NO_COLOR", "TERM", "LANG", "LC_ALL", "TMPDIR")
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|HEADERS|SALT", re.IGNORECASE)


def relevant() -> dict[str, str]:
    """Variables that matter to octavo and what it is made of; values that may be secret, and credentials in addresses, are masked."""
    found = {}
    for name, value in sorted(os.environ.items()):
        if name.startswith(_RELEVANT) or name in _RELEVANT_NAMES or name.lower() in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
            found[name] = "***" if value and _SECRET.search(name) else re.sub(r"(?<=://)[^/@\s]*@", "***@", value)
    return found
