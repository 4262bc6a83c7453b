"""What is decided of metrics and traces; everything wrong with it is told before a model loads."""

import importlib.util
from typing import Any

import pytest

from octavo.config.observability import decide_observability
from octavo.config.options import Options
from octavo.errors import ConfigError


def test_what_is_typed_is_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons: list[str] = []
    plain = decide_observability(Options(), reasons)
    assert (plain.metrics_prefix, plain.histogram_buckets, plain.cache_sample, plain.traces_endpoint) == ("vllm:", {}, 0.0, None)
    assert not reasons
    buckets = {"time_to_first_token": [0.1, 1]}
    options = Options(
        metrics_prefix="octavo_", custom_histogram_buckets=buckets, kv_cache_metrics=True, show_hidden_metrics_for_version="0.32"
    )
    told = decide_observability(options, reasons)
    assert (told.metrics_prefix, told.histogram_buckets, told.cache_sample) == ("octavo_", {"time_to_first_token": [0.1, 1.0]}, 0.01)
    assert "hides no metric" in reasons[0]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    traced = decide_observability(Options(otlp_traces_endpoint="http://c:4318/v1/traces"), [])
    assert (traced.traces_endpoint, traced.traces_protocol) == ("http://c:4318/v1/traces", "http/protobuf")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"metrics_prefix": "no-dash"}, "cannot begin a metric's name"),
        ({"metrics_prefix": "9"}, "cannot begin a metric's name"),
        ({"show_hidden_metrics_for_version": "latest"}, "is no version"),
        ({"kv_cache_metrics_sample": 0.0}, r"\(0, 1\]"),
        ({"kv_cache_metrics_sample": 1.5}, r"\(0, 1\]"),
        ({"kv_cache_metrics": True, "disable_log_stats": True}, "disable-log-stats"),
        ({"collect_detailed_traces": ["model"]}, "await"),
        ({"custom_histogram_buckets": [1, 2]}, "must be a JSON object"),
        ({"custom_histogram_buckets": {"latency": [1]}}, "no family 'latency'"),
        ({"custom_histogram_buckets": {"request_latency": []}}, "positive, finite"),
        ({"custom_histogram_buckets": {"request_latency": [0, 1]}}, "positive, finite"),
        ({"custom_histogram_buckets": {"request_latency": [True]}}, "positive, finite"),
        ({"custom_histogram_buckets": {"request_latency": [1, float("inf")]}}, "positive, finite"),
        ({"custom_histogram_buckets": {"request_latency": [1, 1]}}, "must increase"),
        ({"custom_histogram_buckets": {"request_latency": [2, 1]}}, "must increase"),
    ],
)
def test_what_is_wrong_is_refused_by_name(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        decide_observability(Options(**options), [])


def test_traces_without_their_packages_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ConfigError, match=r"pip install 'octavo\[otel\]'"):
            decide_observability(Options(otlp_traces_endpoint="http://c:4317"), [])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")
    with pytest.raises(ConfigError, match="http/protobuf"):
        decide_observability(Options(otlp_traces_endpoint="http://c:4317"), [])
