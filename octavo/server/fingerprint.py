"""Fingerprint: the system_fingerprint of answers, equal where server, model and every setting that can change an answer are equal."""

import hashlib

import msgspec

from octavo import __version__
from octavo.config.config import Config
from octavo.config.options import ServerOptions
from octavo.errors import ConfigError

# what changes no answer: where files lie, what names and logs are like
_NEUTRAL = {"name", "served_names", "path", "tokenizer_path", "log_level", "log_stats", "reasons"}


def check(options: ServerOptions) -> None:
    """Raise ConfigError for a mode that lacks its value."""
    if options.fingerprint_mode == "custom" and not options.fingerprint_value:
        raise ConfigError("--fingerprint-mode custom needs a fingerprint", "pass --fingerprint-value TEXT")


def fingerprint(options: ServerOptions, config: Config) -> str | None:
    """octavo-<version>[-tp<ranks>]-<hash>; mode hash leaves the ranks out, custom is the operator's own, none is None."""
    if options.fingerprint_mode == "none":
        return None
    if options.fingerprint_mode == "custom":
        return options.fingerprint_value
    ranks = config.parallel.tensor_parallel_size
    parts = ["octavo", __version__, *([f"tp{ranks}"] if ranks > 1 and options.fingerprint_mode == "full" else []), _hash(config)]
    return "-".join(parts)


def _hash(config: Config) -> str:
    """8 hexadecimal digits."""
    settings = {name: value for name, value in msgspec.to_builtins(config).items() if name not in _NEUTRAL}
    settings["model"] = {name: value for name, value in settings["model"].items() if name not in _NEUTRAL}
    return hashlib.sha256(msgspec.json.encode(settings, order="deterministic")).hexdigest()[:8]
