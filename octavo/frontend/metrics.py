"""Metrics: what an engine did, under the names, labels and buckets that dashboards for vLLM read. The table of them is in series.py."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import Metric as Family_

from octavo.config.config import Config
from octavo.frontend.instruments import Counter, Family, Gauge, Histogram
from octavo.frontend.series import BUCKETS, CACHE_LABELS, SERIES, Series, one_two_five
from octavo.protocol.messages import EngineFacts, EngineStats, FinishReason


@dataclass(slots=True)
class FinishedSequence:
    """What is counted when a sequence ends; seconds, None where a stage was never reached."""

    reason: FinishReason
    num_prompt: int
    num_generated: int
    max_tokens: int
    total_s: float
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    num_cached: int = 0
    num_preemptions: int = 0


@dataclass(slots=True)
class Metric:
    """One series of a snapshot: a value for counters and gauges; count, sum and buckets (upper bound -> count so far) for histograms."""

    name: str
    labels: dict[str, str]
    value: float | None = None
    count: int | None = None
    sum: float | None = None
    buckets: dict[str, int] = field(default_factory=dict)


class Metrics:
    """The series of one engine. Used by one thread; what collect() gives may be encoded on another."""

    def __init__(self, config: Config, facts: EngineFacts, engine: int = 0) -> None:
        told = config.observability
        self._own = {"model_name": config.model.served_names[0], "engine": str(engine)} | _cache_labels(config, facts)
        self._buckets = BUCKETS | {"request_tokens": one_two_five(facts.max_model_len)} | told.histogram_buckets
        self._families = {
            series.name: (series, Family(told.metrics_prefix + series.name, series.text, series.labels, self._maker(series)))
            for series in SERIES
            if not series.needs or told.cache_sample
        }
        self._num_waiting = self._num_deferred = 0
        self._bind_engine()
        self._bind_requests()
        self._watches_blocks = "kv_block_lifetime_seconds" in self._families
        if self._watches_blocks:
            self._lifetimes = self._histogram("kv_block_lifetime_seconds")
            self._idles = self._histogram("kv_block_idle_before_evict_seconds")
            self._gaps = self._histogram("kv_block_reuse_gap_seconds")

    # --- recording

    def record_engine(self, stats: EngineStats) -> None:
        """Gauges and counts that the engine core told."""
        self._running.set(stats.num_running)
        self._num_waiting = stats.num_waiting
        self._tell_waiting()
        self._cache_usage.set(stats.kv_cache_usage)
        self._preemptions.inc(stats.num_preemptions)
        self._prefix_queries.inc(stats.prefix_queries)
        self._prefix_hits.inc(stats.prefix_hits)
        self._prompt_tokens.inc(stats.prompt_tokens + stats.cached_prompt_tokens)
        self._computed_tokens.inc(stats.prompt_tokens)
        for counter in self._cached_tokens:
            counter.inc(stats.cached_prompt_tokens)
        self._corrupted.inc(stats.num_corrupted)
        for tokens in stats.step_tokens:
            self._step_tokens.observe(tokens)
        if self._watches_blocks:
            for seconds, histogram in (
                (stats.block_lifetimes_s, self._lifetimes),
                (stats.block_idles_s, self._idles),
                (stats.block_gaps_s, self._gaps),
            ):
                for each in seconds:
                    histogram.observe(each)

    def record_deferred(self, change: int) -> None:
        """So many more sequences (fewer, below 0) wait in the front end."""
        self._num_deferred += change
        self._tell_waiting()

    def record_first_tokens(self, seconds: float, count: int) -> None:
        """A sequence's first tokens, which arrived together."""
        self._generated.value += count
        self._first_token.observe(seconds)
        if count > 1:
            self._between.observe(0.0, count - 1)

    def record_next_tokens(self, seconds: float, count: int) -> None:
        """`count` tokens arrived together, `seconds` after those before them."""
        self._generated.value += count
        self._between.observe(seconds / count, count)

    def record_rejection(self, reason: str = "max_num_queued_reqs") -> None:
        """A limit of the queue refused a request: max_num_queued_reqs or max_num_queued_tokens."""
        self._rejections[reason].inc()

    def record_finished(self, ended: FinishedSequence) -> None:
        self._ended[ended.reason.label].inc()
        self._total.observe(ended.total_s)
        self._lengths_in.observe(ended.num_prompt)
        self._lengths_out.observe(ended.num_generated)
        self._max_tokens.observe(ended.max_tokens)
        self._preempted.observe(ended.num_preemptions)
        if ended.queue_s is not None:
            self._queue.observe(ended.queue_s)
        if ended.prefill_s is not None:
            self._prefill.observe(ended.prefill_s)
            self._computed_in.observe(ended.num_prompt - ended.num_cached)
        if ended.decode_s is not None:
            self._decode.observe(ended.decode_s)
            if ended.num_generated > 1:
                self._per_token.observe(ended.decode_s / (ended.num_generated - 1))
        if ended.prefill_s is not None and ended.decode_s is not None:
            self._inference.observe(ended.prefill_s + ended.decode_s)

    def record_request(self, n: int, num_generated: int) -> None:
        """A request has ended, all n sequences of it; num_generated: tokens of the longest."""
        self._sequences.observe(n)
        self._longest.observe(num_generated)

    def record_engine_death(self) -> None:
        """Nothing runs or waits any more."""
        self._num_waiting = 0
        self._tell_waiting()
        for gauge in (self._running, self._cache_usage):
            gauge.set(0)

    # --- telling

    def collect(self) -> Iterator[Family_]:
        """Every series as prometheus_client knows it."""
        for _, family in self._families.values():
            yield from family.collect()

    def snapshot(self) -> list[Metric]:
        """Every series now."""
        return [metric for family in self.collect() for metric in _flat(family)]

    # --- inside

    def _bind_engine(self) -> None:
        self._running = self._gauge("num_requests_running")
        self._waiting = self._gauge("num_requests_waiting")
        self._waiting_for = {reason: self._gauge("num_requests_waiting_by_reason", reason) for reason in ("capacity", "deferred")}
        self._cache_usage = self._gauge("kv_cache_usage_perc")
        for state in ("awake", "weights_offloaded", "discard_all"):
            self._gauge("engine_sleep_state", state).set(state == "awake")
        self._gauge("cache_config_info").set(1)
        self._preemptions = self._counter("num_preemptions")
        self._prefix_queries = self._counter("prefix_cache_queries")
        self._prefix_hits = self._counter("prefix_cache_hits")
        self._corrupted = self._counter("corrupted_requests")
        self._step_tokens = self._histogram("iteration_tokens_total")
        self._prompt_tokens = self._counter("prompt_tokens")
        sources = self._counters("prompt_tokens_by_source")
        tiers = self._counters("prompt_tokens_cached_by_source")
        self._computed_tokens = sources["local_compute"]
        self._cached_tokens = (sources["local_cache_hit"], self._counter("prompt_tokens_cached"), tiers["device"])

    def _bind_requests(self) -> None:
        self._generated = self._counter("generation_tokens")
        self._ended = self._counters("request_success")
        self._rejections = self._counters("admission_rejections")
        self._lengths_in = self._histogram("request_prompt_tokens")
        self._lengths_out = self._histogram("request_generation_tokens")
        self._longest = self._histogram("request_max_num_generation_tokens")
        self._sequences = self._histogram("request_params_n")
        self._max_tokens = self._histogram("request_params_max_tokens")
        self._preempted = self._histogram("request_num_preemptions")
        self._computed_in = self._histogram("request_prefill_kv_computed_tokens")
        self._first_token = self._histogram("time_to_first_token_seconds")
        self._between = self._histogram("inter_token_latency_seconds")
        self._per_token = self._histogram("request_time_per_output_token_seconds")
        self._total = self._histogram("e2e_request_latency_seconds")
        self._queue = self._histogram("request_queue_time_seconds")
        self._inference = self._histogram("request_inference_time_seconds")
        self._prefill = self._histogram("request_prefill_time_seconds")
        self._decode = self._histogram("request_decode_time_seconds")

    def _tell_waiting(self) -> None:
        self._waiting_for["capacity"].set(self._num_waiting)
        self._waiting_for["deferred"].set(self._num_deferred)
        self._waiting.set(self._num_waiting + self._num_deferred)

    def _maker(self, series: Series) -> Any:
        if series.kind == "histogram":
            return lambda: Histogram(self._buckets[series.family])
        return Gauge if series.kind == "gauge" else Counter

    def _member(self, name: str, value: str) -> Any:
        series, family = self._families[name]
        values = [self._own[label] for label in series.own]
        return family.of(*values, value) if series.label else family.of(*values)

    def _gauge(self, name: str, value: str = "") -> Gauge:
        found = self._member(name, value)
        assert isinstance(found, Gauge)
        return found

    def _counter(self, name: str, value: str = "") -> Counter:
        found = self._member(name, value)
        assert isinstance(found, Counter)
        return found

    def _counters(self, name: str) -> dict[str, Counter]:
        """One for each value of its label, all of them told from the start."""
        return {value: self._counter(name, value) for value in self._families[name][0].values}

    def _histogram(self, name: str) -> Histogram:
        found = self._member(name, "")
        assert isinstance(found, Histogram)
        return found


def _cache_labels(config: Config, facts: EngineFacts) -> dict[str, str]:
    cache = config.cache
    told = {
        "block_size": facts.block_size,
        "num_gpu_blocks": facts.num_blocks,
        "num_gpu_blocks_override": cache.num_blocks_override,
        "cache_dtype": cache.dtype,
        "enable_prefix_caching": cache.prefix_caching,
        "prefix_caching_hash_algo": cache.hash_algorithm,
        "gpu_memory_utilization": cache.memory_utilization,
        "kv_cache_memory_bytes": facts.cache_bytes,
        "kv_cache_size_tokens": facts.cache_tokens,
        "kv_cache_max_concurrency": facts.max_concurrency,
    }
    assert set(told) == set(CACHE_LABELS) - {"engine"}
    return {name: str(value) for name, value in told.items()}


def _flat(family: Family_) -> list[Metric]:
    """The series of a family."""
    samples = [s for s in family.samples if not s.name.endswith("_created")]
    if family.type != "histogram":
        return [Metric(family.name, dict(s.labels), value=s.value) for s in samples]
    found: dict[tuple[tuple[str, str], ...], Metric] = {}
    for sample in samples:
        labels = {k: v for k, v in sample.labels.items() if k != "le"}
        metric = found.setdefault(tuple(sorted(labels.items())), Metric(family.name, labels))
        if sample.name.endswith("_bucket"):
            metric.buckets[sample.labels["le"]] = int(sample.value)
        elif sample.name.endswith("_count"):
            metric.count = int(sample.value)
        elif sample.name.endswith("_sum"):
            metric.sum = sample.value
    return list(found.values())
