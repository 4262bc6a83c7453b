"""Environment: every variable that octavo reads, read here and nowhere else.

A variable is `OCTAVO_NAME`; `VLLM_NAME` is read as a fallback where vLLM has the same one. VARIABLES lists them; what else vLLM has is in
config/variables.txt. A value that cannot be is a ConfigError that names the variable.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def read(name: str, default: str | None = None) -> str | None:
    """The value of OCTAVO_<name>, else VLLM_<name>, else `default`. An empty value counts as unset."""
    return os.environ.get(f"OCTAVO_{name}") or os.environ.get(f"VLLM_{name}") or default


def spelled(name: str) -> str:
    """The variable that `read` takes the value from."""
    return f"OCTAVO_{name}" if os.environ.get(f"OCTAVO_{name}") or not os.environ.get(f"VLLM_{name}") else f"VLLM_{name}"


def of_ours() -> dict[str, str]:
    """Every variable that is set and whose name begins like ours or vLLM's."""
    return {name: value for name, value in os.environ.items() if name.startswith(("OCTAVO_", "VLLM_")) and value}


def flag(name: str, default: bool = False) -> bool:
    """A switch: 1, true, yes, on (any case) are on; 0, false, no, off are off."""
    value = read(name)
    if value is None:
        return default
    if (word := value.strip().lower()) in (*_ON, *_OFF):
        return word in _ON
    raise ConfigError(f"{spelled(name)}={value!r} is no switch", "set it to 1 or 0")


def number(name: str, default: float, least: float = 0.0) -> float:
    """A number that is at least `least`."""
    value = read(name)
    try:
        found = default if value is None else float(value)
    except ValueError:
        raise ConfigError(f"{spelled(name)}={value!r} is no number") from None
    if not found >= least:
        raise ConfigError(f"{spelled(name)}={value!r} must be at least {least:g}")
    return found


def whole(name: str, default: int, least: int = 0) -> int:
    """A whole number that is at least `least`."""
    found = number(name, default, least)
    if found != int(found):
        raise ConfigError(f"{spelled(name)}={read(name)!r} is no whole number")
    return int(found)


# --- files and the hub


def cache_root() -> Path:
    """Where octavo keeps what can be made again: compiled kernels, catalog models. Default: ~/.cache/octavo."""
    root = read("CACHE_ROOT")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) if root else Path(base) / "octavo"


def shown() -> dict[str, str]:
    """The variables of ours that are set; those that may hold a secret without their values."""
    ours = {name: value for name, value in os.environ.items() if name.startswith(("OCTAVO_", "VLLM_"))}
    return {name: "(set)" if any(w in name for w in ("KEY", "TOKEN", "SECRET", "PASSWORD")) else value for name, value in ours.items()}


def trace_protocol() -> str:
    """OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, else OTEL_EXPORTER_OTLP_PROTOCOL: how traces are sent."""
    return os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "grpc"


def names_trace_service() -> bool:
    """Whether OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES says what the service is called in traces."""
    return bool(os.environ.get("OTEL_SERVICE_NAME")) or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")


def engine_pulse_timeout_s() -> float:
    """Seconds without a sign of life after which a process of the engine is killed, and its clients told; 0 = never. Default: 20."""
    return number("ENGINE_PULSE_TIMEOUT_S", 20.0)


def is_offline() -> bool:
    """HF_HUB_OFFLINE: nothing may be fetched."""
    return (os.environ.get("HF_HUB_OFFLINE") or "").strip().lower() in _ON


def hub_cache() -> Path:
    """Where the Hugging Face cache keeps models: HF_HUB_CACHE, else $HF_HOME/hub."""
    explicit = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("HF_HOME") or Path(base) / "huggingface") / "hub"


def must_find_kernels() -> bool:
    """Every kernel must lie in the cache: one that is missing is an error, and none is compiled. Default: 0."""
    return flag("FORCE_AOT_LOAD")


def use_modelscope() -> bool:
    """Fetch models from ModelScope instead of the Hugging Face hub; needs the extra modelscope. Default: 0."""
    return flag("USE_MODELSCOPE")


def model_redirects() -> dict[str, str]:
    """A file that names a local folder for a hub id: a JSON object, or lines of two words. Default: none."""
    name = read("MODEL_REDIRECT_PATH")
    if name is None:
        return {}
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{spelled('MODEL_REDIRECT_PATH')}: {name} cannot be read: {error.strerror}") from None
    try:
        found = json.loads(text)
    except ValueError:
        found = {words[0]: words[1] for line in text.splitlines() if len(words := line.split()) == 2}
    if not isinstance(found, dict):
        raise ConfigError(f"{spelled('MODEL_REDIRECT_PATH')}: {name} holds no JSON object and no lines of two words")
    return {str(hub_id): str(folder) for hub_id, folder in found.items()}


# --- log


def logging_level() -> str:
    """Least severe records that are logged. Default: INFO."""
    level = (read("LOGGING_LEVEL") or "INFO").upper()
    if level not in ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"):
        raise ConfigError(f"{spelled('LOGGING_LEVEL')}={level!r} is no level", "CRITICAL, ERROR, WARNING, INFO or DEBUG")
    return level


def configures_logging() -> bool:
    """0: octavo leaves Python's logging as it finds it. Default: 1."""
    return flag("CONFIGURE_LOGGING", True)


def logging_config_path() -> Path | None:
    """A JSON file for logging.config.dictConfig, in place of octavo's own set-up. Default: none."""
    path = read("LOGGING_CONFIG_PATH")
    return Path(path).expanduser() if path else None


def logging_stream() -> str:
    """Where the log goes: ext://sys.stderr or ext://sys.stdout. Default: ext://sys.stderr."""
    stream = read("LOGGING_STREAM") or "ext://sys.stderr"
    if stream.removeprefix("ext://sys.") not in ("stderr", "stdout"):
        raise ConfigError(f"{spelled('LOGGING_STREAM')}={stream!r} is no stream", "ext://sys.stderr or ext://sys.stdout")
    return stream.removeprefix("ext://sys.")


def logging_prefix() -> str:
    """Text before every line of the log. Default: none."""
    return read("LOGGING_PREFIX") or ""


def logging_color() -> bool | None:
    """Colours in the log: 1, 0, or auto = on a terminal. Default: auto."""
    return None if (read("LOGGING_COLOR") or "auto") == "auto" else flag("LOGGING_COLOR")


def log_stats_interval_s() -> float:
    """Seconds between two lines of statistics. Default: 10."""
    return number("LOG_STATS_INTERVAL", 10.0) or 10.0


def debug_log_api_server_response() -> bool:
    """Log every answer of the API. Default: 0."""
    return flag("DEBUG_LOG_API_SERVER_RESPONSE")


# --- processes


def engine_ready_timeout_s() -> float:
    """Seconds that the engine gets to start. Default: 600."""
    return number("ENGINE_READY_TIMEOUT_S", 600.0)


def worker_shutdown_timeout_s() -> float:
    """Seconds that a process which was told to end gets before it is killed. Default: 5."""
    return number("WORKER_SHUTDOWN_TIMEOUT_SECONDS", 5.0)


def in_one_process() -> bool:
    """0: engine core and worker of an LLM live in the caller's process. Default: 1."""
    return not flag("ENABLE_V1_MULTIPROCESSING", True)


def multiprocessing_method() -> str:
    """How processes are started: spawn, the only way there is; fork is refused. Default: spawn."""
    method = read("WORKER_MULTIPROC_METHOD") or "spawn"
    if method != "spawn":
        raise ConfigError(f"{spelled('WORKER_MULTIPROC_METHOD')}={method}: octavo's processes are fresh interpreters", "set it to spawn")
    return method


def process_name_prefix() -> str:
    """What the names of octavo's processes begin with in ps and top. Default: octavo."""
    return read("PROCESS_NAME_PREFIX") or "octavo"


def socket_root() -> Path:
    """Where the sockets between octavo's processes are made. Default: the folder for temporary files."""
    return Path(read("RPC_BASE_PATH") or _temporary())


def runtime_root() -> Path:
    """Where processes of this user meet: XDG_RUNTIME_DIR, else the folder for temporary files."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or _temporary())


def _temporary() -> str:
    import tempfile  # a tenth of the time that --help takes

    return tempfile.gettempdir()


def keep_alive_on_engine_death() -> bool:
    """Let the server live on (answering 503) when the engine's process has died, instead of exiting with 1. Default: 0."""
    return flag("KEEP_ALIVE_ON_ENGINE_DEATH")


# --- engine


def allow_long_max_model_len() -> bool:
    """Let --max-model-len exceed what the model's configuration says. Default: 0."""
    return flag("ALLOW_LONG_MAX_MODEL_LEN")


def cpu_kvcache_space_gib() -> float:
    """GiB of the cache, where --kv-cache-memory-bytes is not given; 0 = what is left. Default: 0."""
    return number("CPU_KVCACHE_SPACE", 0.0)


def cpu_threads_bind() -> str:
    """Cores that compute threads run on, as 0-3,6; auto and nobind leave it to the system. Default: auto."""
    return read("CPU_OMP_THREADS_BIND") or "auto"


def cpu_num_reserved() -> int:
    """Cores that compute threads leave alone. Default: 0."""
    return whole("CPU_NUM_OF_RESERVED_CPU", 0)


def prefix_hash_seed() -> str | None:
    """PYTHONHASHSEED, if it is a number: prefix cache keys are then equal in every process. None: keys that nobody can tell in advance."""
    seed = os.environ.get("PYTHONHASHSEED", "random")
    return None if seed == "random" or not seed else seed


# --- requests


def max_num_sequences() -> int:
    """The largest n of one request. Default: 16384."""
    return whole("MAX_N_SEQUENCES", 16384, 1)


def max_stop_strings() -> int:
    """The largest number of stop strings that the server takes in one request. Default: 4."""
    return whole("MAX_STOP_STRINGS", 4)


def max_completion_prompts() -> int:
    """The largest number of prompts in one request for completions. Default: 1024."""
    return whole("MAX_COMPLETION_PROMPTS", 1024, 1)


def max_num_bad_words() -> int:
    """The largest number of token sequences that one request may forbid. Default: 128."""
    return whole("MAX_NUM_BAD_WORDS", 128)


def max_bad_words_total_tokens() -> int:
    """The largest number of tokens in all sequences that one request forbids. Default: 1024."""
    return whole("MAX_BAD_WORDS_TOTAL_TOKENS", 1024)


def chat_template_render_timeout_s() -> float:
    """Seconds that rendering a chat template may take; 0 = no limit. Default: 3."""
    return number("CHAT_TEMPLATE_RENDER_TIMEOUT", 3.0) or float("inf")


def gpt_oss_harmony_system_instructions() -> bool:
    """Put a system message's text into gpt-oss's system message instead of its developer message. Default: 0."""
    return flag("GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS")


def system_start_date() -> str | None:
    """The date, as YYYY-MM-DD, that gpt-oss is told; unset: today's."""
    value = read("SYSTEM_START_DATE")
    if value is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        raise ConfigError(f"{spelled('SYSTEM_START_DATE')} must be a date like 2026-01-31, not {value!r}")
    return value


def skip_model_name_validation() -> bool:
    """Answer requests whatever model they name. Default: 0."""
    return flag("SKIP_MODEL_NAME_VALIDATION")


def outputs_at_once() -> int:
    """Outputs that are turned into text before other tasks get their turn. Default: 64."""
    return whole("V1_OUTPUT_PROC_CHUNK_SIZE", 64, 1)


# --- server


def api_keys() -> list[str]:
    """Keys that clients of the server must send, and that octavo chat sends (the first); commas between. Default: none."""
    return [key for part in (read("API_KEY") or "").split(",") if (key := part.strip())]


def api_key() -> str | None:
    """The first of api_keys."""
    return next(iter(api_keys()), None)


def host_ip() -> str | None:
    """This machine's address as others reach it, for the address that the server says when it listens on all. Default: none."""
    return read("HOST_IP")


def http_timeout_keep_alive_s() -> int:
    """Seconds that an idle HTTP connection is kept open. Default: 5."""
    return whole("HTTP_TIMEOUT_KEEP_ALIVE", 5)


def http_max_request_body_size() -> int:
    """The largest request body in bytes; 0 = no limit. Default: 33554432."""
    return whole("HTTP_MAX_REQUEST_BODY_SIZE", 32 << 20)


def server_dev_mode() -> bool:
    """Endpoints for developers, such as /reset_prefix_cache, and the places of errors in the log. Default: 0."""
    return flag("SERVER_DEV_MODE")


# --- tests


def test_models() -> Path | None:
    """A folder of models that tests may use instead of fetching."""
    path = os.environ.get("OCTAVO_TEST_MODELS")
    return Path(path) if path else None


def test_fixtures() -> Path | None:
    """A folder with the archives that tests would otherwise fetch."""
    path = os.environ.get("OCTAVO_TEST_FIXTURES")
    return Path(path) if path else None


def openai_api_key() -> str | None:
    """OPENAI_API_KEY, which clients of other servers have."""
    return os.environ.get("OPENAI_API_KEY") or None


# --- the terminal


def wants_color(is_terminal: bool) -> bool:
    """NO_COLOR, FORCE_COLOR and TERM=dumb decide, in this order; else whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal and os.environ.get("TERM") != "dumb"


def force_color(is_wanted: bool) -> None:
    """What --color says, for this process, its libraries and its children."""
    os.environ.pop("NO_COLOR", None)
    os.environ.pop("FORCE_COLOR", None)
    os.environ["FORCE_COLOR" if is_wanted else "NO_COLOR"] = "1"


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


# name without prefix -> its reader; its docstring is the documentation
VARIABLES: Mapping[str, Callable[[], Any]] = {
    "API_KEY": api_keys,
    "HOST_IP": host_ip,
    "HTTP_TIMEOUT_KEEP_ALIVE": http_timeout_keep_alive_s,
    "HTTP_MAX_REQUEST_BODY_SIZE": http_max_request_body_size,
    "KEEP_ALIVE_ON_ENGINE_DEATH": keep_alive_on_engine_death,
    "SERVER_DEV_MODE": server_dev_mode,
    "DEBUG_LOG_API_SERVER_RESPONSE": debug_log_api_server_response,
    "GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS": gpt_oss_harmony_system_instructions,
    "SYSTEM_START_DATE": system_start_date,
    "SKIP_MODEL_NAME_VALIDATION": skip_model_name_validation,
    "MAX_N_SEQUENCES": max_num_sequences,
    "MAX_STOP_STRINGS": max_stop_strings,
    "MAX_COMPLETION_PROMPTS": max_completion_prompts,
    "MAX_NUM_BAD_WORDS": max_num_bad_words,
    "MAX_BAD_WORDS_TOTAL_TOKENS": max_bad_words_total_tokens,
    "CHAT_TEMPLATE_RENDER_TIMEOUT": chat_template_render_timeout_s,
    "V1_OUTPUT_PROC_CHUNK_SIZE": outputs_at_once,
    "LOGGING_LEVEL": logging_level,
    "CONFIGURE_LOGGING": configures_logging,
    "LOGGING_CONFIG_PATH": logging_config_path,
    "LOGGING_STREAM": logging_stream,
    "LOGGING_PREFIX": logging_prefix,
    "LOGGING_COLOR": logging_color,
    "LOG_STATS_INTERVAL": log_stats_interval_s,
    "CACHE_ROOT": cache_root,
    "FORCE_AOT_LOAD": must_find_kernels,
    "USE_MODELSCOPE": use_modelscope,
    "MODEL_REDIRECT_PATH": model_redirects,
    "ALLOW_LONG_MAX_MODEL_LEN": allow_long_max_model_len,
    "CPU_KVCACHE_SPACE": cpu_kvcache_space_gib,
    "CPU_OMP_THREADS_BIND": cpu_threads_bind,
    "CPU_NUM_OF_RESERVED_CPU": cpu_num_reserved,
    "ENGINE_READY_TIMEOUT_S": engine_ready_timeout_s,
    "ENGINE_PULSE_TIMEOUT_S": engine_pulse_timeout_s,
    "WORKER_SHUTDOWN_TIMEOUT_SECONDS": worker_shutdown_timeout_s,
    "ENABLE_V1_MULTIPROCESSING": in_one_process,
    "WORKER_MULTIPROC_METHOD": multiprocessing_method,
    "PROCESS_NAME_PREFIX": process_name_prefix,
    "RPC_BASE_PATH": socket_root,
}
# ours alone
OURS: Mapping[str, Callable[[], Any]] = {"OCTAVO_TEST_MODELS": test_models, "OCTAVO_TEST_FIXTURES": test_fixtures}
# other programs' names that are honoured
OTHERS: Mapping[str, Callable[[], Any]] = {
    "HF_HUB_OFFLINE": is_offline,
    "HF_HUB_CACHE": hub_cache,
    "XDG_RUNTIME_DIR": runtime_root,
    "PYTHONHASHSEED": prefix_hash_seed,
    "OPENAI_API_KEY": openai_api_key,
}
