"""Observability: what is decided of the log, the metrics and the traces. Everything wrong with it is found here, before a model loads."""

import importlib.util
import itertools
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

from octavo import environment
from octavo.config.config import ObservabilityConfig
from octavo.config.options import Options
from octavo.errors import ConfigError
from octavo.logging import LogSettings

LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET")
BUCKET_FAMILIES = (
    "request_latency",
    "time_to_first_token",
    "inter_token_latency",
    "iteration_tokens",
    "request_tokens",
    "request_params_n",
    "request_num_preemptions",
    "kv_cache_residency",
)
_LOGGING_CONFIG = ("log_level", "formatter", "configure_logging", "pylogging_config_file")
_EXPORTERS = {"grpc": "opentelemetry.exporter.otlp.proto.grpc", "http/protobuf": "opentelemetry.exporter.otlp.proto.http"}


def decide_log(options: Options) -> tuple[str, LogSettings]:
    """The least severe level that is logged, and how. Raises ConfigError."""
    given = options.logging_config
    for key in given:
        if key not in _LOGGING_CONFIG:
            raise ConfigError(f"--logging-config has no {key!r}", f"it has {', '.join(_LOGGING_CONFIG)}")
    level = str(options.log_level or given.get("log_level") or environment.logging_level()).upper()
    if level not in LEVELS:
        raise ConfigError(f"{level!r} is no level of the log", f"use one of {', '.join(LEVELS)}")
    form = given.get("formatter", "text") if options.log_format == "text" else options.log_format
    if form not in ("text", "json"):
        raise ConfigError(f"--logging-config: formatter is {form!r}", "use text or json")
    is_configured = given.get("configure_logging", environment.configures_logging())
    path = given.get("pylogging_config_file") or environment.logging_config_path()
    if path is not None and not is_configured:
        raise ConfigError(f"{path} is to configure the log, which is not to be configured", "leave OCTAVO_CONFIGURE_LOGGING=0 away")
    stream, color = _stream(environment.logging_stream()), environment.logging_color()
    if color is None:
        color = environment.wants_color((sys.stdout if stream == "stdout" else sys.stderr).isatty())
    settings = LogSettings(
        format=form,
        prefix=environment.logging_prefix(),
        stream=stream,
        is_colored=color,
        is_configured=bool(is_configured),
        dictionary=None if path is None else _dictionary(str(path)),
    )
    return level, settings


def decide_observability(options: Options, reasons: list[str]) -> ObservabilityConfig:
    """The metrics and the traces. Raises ConfigError."""
    if not re.fullmatch(r"[A-Za-z_:][A-Za-z0-9_:]*|", options.metrics_prefix):
        raise ConfigError(
            f"--metrics-prefix {options.metrics_prefix!r} cannot begin a metric's name", "use letters, digits, _ and :, such as octavo:"
        )
    if (version := options.show_hidden_metrics_for_version) is not None:
        if not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
            raise ConfigError(f"--show-hidden-metrics-for-version {version!r} is no version", "write it as 0.33")
        reasons.append(f"show_hidden_metrics_for_version = {version}: octavo hides no metric, all are shown")
    sample = options.kv_cache_metrics_sample
    if not 0.0 < sample <= 1.0:
        raise ConfigError(f"kv_cache_metrics_sample must be in (0, 1], not {sample:g}")
    if options.kv_cache_metrics and options.disable_log_stats:
        raise ConfigError("--kv-cache-metrics needs the statistics that --disable-log-stats turns off", "leave one of the two away")
    if options.collect_detailed_traces:
        raise ConfigError(
            f"--collect-detailed-traces {','.join(options.collect_detailed_traces)}: spans of the model and the worker await their feature",
            "leave it away; --otlp-traces-endpoint alone traces each request with its phases",
        )
    protocol = environment.trace_protocol()
    if options.otlp_traces_endpoint is not None:
        _check_traces(protocol)
    return ObservabilityConfig(
        metrics_prefix=options.metrics_prefix,
        histogram_buckets=_histogram_buckets(options.custom_histogram_buckets),
        cache_sample=sample if options.kv_cache_metrics else 0.0,
        traces_endpoint=options.otlp_traces_endpoint,
        traces_protocol=protocol,
    )


def _stream(name: str) -> str:
    found = name.removeprefix("ext://sys.")
    if found not in ("stderr", "stdout"):
        raise ConfigError(f"OCTAVO_LOGGING_STREAM is {name!r}", "use ext://sys.stderr or ext://sys.stdout")
    return found


def _dictionary(path: str) -> dict[str, Any]:
    """The file that configures Python's logging; whether it can is tried where the log is configured."""
    try:
        found = json.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"the log's configuration {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"the log's configuration {path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"the log's configuration {path} must be a JSON object", "its form is that of logging.config.dictConfig")
    return found


def _histogram_buckets(given: Any) -> dict[str, list[float]]:
    if not isinstance(given, dict | None):
        raise ConfigError("--custom-histogram-buckets must be a JSON object", 'write it as {"time_to_first_token": [0.1, 1, 10]}')
    found: dict[str, list[float]] = {}
    for family, bounds in (given or {}).items():
        if family not in BUCKET_FAMILIES:
            raise ConfigError(f"--custom-histogram-buckets: there is no family {family!r}", f"there are {', '.join(BUCKET_FAMILIES)}")
        if not isinstance(bounds, list) or not bounds or not all(_is_bound(bound) for bound in bounds):
            raise ConfigError(f"--custom-histogram-buckets: {family} must be a list of positive, finite numbers")
        if any(later <= earlier for earlier, later in itertools.pairwise(bounds)):
            raise ConfigError(f"--custom-histogram-buckets: the bounds of {family} must increase", "write each once, the smallest first")
        found[family] = [float(bound) for bound in bounds]
    return found


def _is_bound(bound: Any) -> bool:
    return isinstance(bound, (int, float)) and not isinstance(bound, bool) and math.isfinite(bound) and bound > 0


def _check_traces(protocol: str) -> None:
    if protocol not in _EXPORTERS:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is {protocol!r}", f"use {' or '.join(_EXPORTERS)}")
    for package in ("opentelemetry.sdk", _EXPORTERS[protocol]):
        try:
            is_there = importlib.util.find_spec(package) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            raise ConfigError(f"--otlp-traces-endpoint needs the package {package}", "pip install 'octavo[otel]'")
