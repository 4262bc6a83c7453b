"""Metrics: what an engine did, under the names, labels and buckets that dashboards for vLLM read."""

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from octavo.config.config import Config
from octavo.protocol.messages import EngineFacts, EngineStats, FinishReason

_FIRST_TOKEN_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
    640.0,
    2560.0,
)
_BETWEEN_TOKENS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_SEQUENCES = (1, 2, 5, 10, 20)

_LABELS = ("model_name", "engine")


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
    """The series of one engine, in a registry of their own."""

    def __init__(self, config: Config, facts: EngineFacts, engine: int = 0) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": config.model.served_names[0], "engine": str(engine)}
        lengths = _one_two_five(facts.max_model_len)
        self._running = self._gauge("num_requests_running", "Requests in the batch.")
        self._waiting = self._gauge("num_requests_waiting", "Requests that wait to be scheduled.")
        self._cache_usage = self._gauge("kv_cache_usage_perc", "Share of the cache in use; 1 is all of it.")
        self._preemptions = self._counter("num_preemptions", "Preemptions.")
        self._prefix_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._prefix_hits = self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens computed.")
        self._cached_tokens = self._counter("prompt_tokens_cached", "Prompt tokens of answered requests that came from the cache.")
        self._generated = self._counter("generation_tokens", "Tokens generated.")
        self._step_tokens = self._histogram("iteration_tokens_total", "Tokens of a step.", _STEP_TOKENS)
        self._first_token = self._histogram("time_to_first_token_seconds", "From arrival to the first token.", _FIRST_TOKEN_S)
        self._between = self._histogram("inter_token_latency_seconds", "Between two tokens of a request.", _BETWEEN_TOKENS_S)
        self._per_token = self._histogram("request_time_per_output_token_seconds", "The same, mean of each request.", _BETWEEN_TOKENS_S)
        self._total = self._histogram("e2e_request_latency_seconds", "From arrival to the end of a request.", _REQUEST_S)
        self._queue = self._histogram("request_queue_time_seconds", "From arrival in the engine to the first step.", _REQUEST_S)
        self._inference = self._histogram("request_inference_time_seconds", "From the first step to the last token.", _REQUEST_S)
        self._prefill = self._histogram("request_prefill_time_seconds", "From the first step to the first token.", _REQUEST_S)
        self._decode = self._histogram("request_decode_time_seconds", "From the first token to the last.", _REQUEST_S)
        self._lengths_in = self._histogram("request_prompt_tokens", "Prompt tokens of a request.", lengths)
        self._lengths_out = self._histogram("request_generation_tokens", "Generated tokens of a request.", lengths)
        self._max_tokens = self._histogram("request_params_max_tokens", "max_tokens of a request.", lengths)
        self._sequences = self._histogram("request_params_n", "n of a request.", _SEQUENCES)
        rejections = Counter(
            "vllm:admission_rejections", "Requests refused by a limit of the queue.", ("model_name", "reason"), registry=self.registry
        )
        self._rejections = {r: rejections.labels(self._labels["model_name"], r) for r in ("max_num_queued_reqs", "max_num_queued_tokens")}
        ended = Counter("vllm:request_success", "Requests that ended, by reason.", (*_LABELS, "finished_reason"), registry=self.registry)
        self._ended = {reason: ended.labels(**self._labels, finished_reason=reason.label) for reason in FinishReason}
        self._tell_configuration(config, facts, engine)

    def record_engine(self, stats: EngineStats) -> None:
        """Gauges and counts that the engine core told."""
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        self._cache_usage.set(stats.kv_cache_usage)
        self._preemptions.inc(stats.num_preemptions)
        self._prefix_queries.inc(stats.prefix_queries)
        self._prefix_hits.inc(stats.prefix_hits)
        self._prompt_tokens.inc(stats.prompt_tokens)
        self._generated.inc(stats.generation_tokens)
        for tokens in stats.step_tokens:
            self._step_tokens.observe(tokens)

    def record_request(self, n: int, max_tokens: int) -> None:
        self._sequences.observe(n)
        self._max_tokens.observe(max_tokens)

    def record_first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def record_next_tokens(self, seconds: float, count: int) -> None:
        """`count` tokens arrived together, `seconds` after those before them."""
        for _ in range(count):
            self._between.observe(seconds / count)

    def record_rejection(self, reason: str) -> None:
        self._rejections[reason].inc()

    def record_finished(self, ended: FinishedSequence) -> None:
        self._ended[ended.reason].inc()
        self._total.observe(ended.total_s)
        self._lengths_in.observe(ended.num_prompt)
        self._lengths_out.observe(ended.num_generated)
        self._cached_tokens.inc(ended.num_cached)
        if ended.queue_s is not None:
            self._queue.observe(ended.queue_s)
        if ended.prefill_s is not None:
            self._prefill.observe(ended.prefill_s)
        if ended.decode_s is not None:
            self._decode.observe(ended.decode_s)
            if ended.num_generated > 1:
                self._per_token.observe(ended.decode_s / (ended.num_generated - 1))
        if ended.prefill_s is not None and ended.decode_s is not None:
            self._inference.observe(ended.prefill_s + ended.decode_s)

    def record_engine_death(self) -> None:
        """Nothing runs or waits any more."""
        for gauge in (self._running, self._waiting, self._cache_usage):
            gauge.set(0)

    def snapshot(self) -> list[Metric]:
        """Every series now."""
        found: list[Metric] = []
        for family in self.registry.collect():
            if family.type != "histogram":
                samples = [s for s in family.samples if not s.name.endswith("_created")]
                found += [Metric(family.name, dict(s.labels), value=s.value) for s in samples]
                continue
            series: dict[tuple[tuple[str, str], ...], Metric] = {}
            for sample in family.samples:
                labels = {k: v for k, v in sample.labels.items() if k != "le"}
                metric = series.setdefault(tuple(sorted(labels.items())), Metric(family.name, labels))
                if sample.name.endswith("_bucket"):
                    metric.buckets[sample.labels["le"]] = int(sample.value)
                elif sample.name.endswith("_count"):
                    metric.count = int(sample.value)
                elif sample.name.endswith("_sum"):
                    metric.sum = sample.value
            found += series.values()
        return found

    def _tell_configuration(self, config: Config, facts: EngineFacts, engine: int) -> None:
        cache = config.cache
        labels = {
            "block_size": str(facts.block_size),
            "num_gpu_blocks": str(facts.num_blocks),
            "cache_dtype": cache.dtype,
            "enable_prefix_caching": str(cache.prefix_caching),
            "prefix_caching_hash_algo": cache.hash_algorithm,
            "gpu_memory_utilization": str(cache.memory_utilization),
            "kv_cache_memory_bytes": str(facts.cache_bytes),
            "engine": str(engine),
        }
        info = Gauge("vllm:cache_config_info", "The cache's configuration, as labels.", tuple(labels), registry=self.registry)
        info.labels(**labels).set(1)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, _LABELS, registry=self.registry).labels(**self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, _LABELS, registry=self.registry).labels(**self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"vllm:{name}", text, _LABELS, buckets=buckets, registry=self.registry).labels(**self._labels)


def _one_two_five(largest: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 ... up to `largest`."""
    found: list[int] = []
    scale = 1
    while True:
        for step in (1, 2, 5):
            if step * scale > largest:
                return tuple(found) or (1,)
            found.append(step * scale)
        scale *= 10
