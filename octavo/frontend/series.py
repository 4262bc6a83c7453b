"""Series: every series that an engine tells, each once: its name, labels and buckets as in vLLM, what it says, and who counts it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]

ENGINE = ("model_name", "engine")
STEP = "core, each step"
TOKEN = "front end, each token"
END = "front end, when a sequence ends"
REQUEST_END = "front end, when a request ends"
ONCE = "front end, when the engine is up"


@dataclass(frozen=True, slots=True)
class Series:
    """One name. A counter has _total behind it at /metrics, and _created; a histogram has _bucket, _sum, _count and _created.

    label, values: a label beside those of `own`, and every value that it can have. family: of --custom-histogram-buckets.
    needs: the option without which it is not there.
    """

    name: str
    kind: Kind
    text: str
    source: str
    label: str = ""
    values: tuple[str, ...] = ()
    own: tuple[str, ...] = ENGINE
    family: str = ""
    needs: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.own, self.label) if self.label else self.own


def one_two_five(largest: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to `largest`."""
    found: list[float] = []
    scale = 1
    while True:
        for step in (1, 2, 5):
            if step * scale > largest:
                return tuple(found) or (1,)
            found.append(step * scale)
        scale *= 10


# upper bounds by family; those of request_tokens are one_two_five(max_model_len)
BUCKETS: dict[str, tuple[float, ...]] = {
    "request_latency": (
        *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
        *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
    ),
    "time_to_first_token": (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
        *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
    ),
    "inter_token_latency": (
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
        *(20.0, 40.0, 80.0),
    ),
    "iteration_tokens": (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    "request_params_n": (1, 2, 5, 10, 20),
    "request_num_preemptions": (1, 2, 3, 4, 5, 10, 20),
    "kv_cache_residency": (
        *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0),
        *(120.0, 300.0, 600.0, 1200.0, 1800.0),
    ),
}

CACHE_LABELS = (
    "block_size", "num_gpu_blocks", "num_gpu_blocks_override", "cache_dtype", "enable_prefix_caching", "prefix_caching_hash_algo",
    "gpu_memory_utilization", "kv_cache_memory_bytes", "kv_cache_size_tokens", "kv_cache_max_concurrency", "engine",
)  # fmt: skip

SERIES: tuple[Series, ...] = (
    # now
    Series("num_requests_running", "gauge", "Requests in the batch.", STEP),
    Series("num_requests_waiting", "gauge", "Requests that wait, whatever for.", STEP),
    Series(
        "num_requests_waiting_by_reason",
        "gauge",
        "Requests that wait, by what for: capacity = a place in the batch; deferred = further sequences of n > 1, which wait for the first "
        "one to fill the prefix cache.",
        STEP,
        "reason",
        ("capacity", "deferred"),
    ),
    Series("kv_cache_usage_perc", "gauge", "Share of the cache that requests hold; 1 is all of it.", STEP),
    Series(
        "engine_sleep_state",
        "gauge",
        "1 for the state that the engine is in; octavo is always awake.",
        ONCE,
        "sleep_state",
        ("awake", "weights_offloaded", "discard_all"),
    ),
    Series("cache_config_info", "gauge", "Always 1; the cache's configuration is in the labels.", ONCE, own=CACHE_LABELS),
    # cache and scheduler
    Series("prefix_cache_queries", "counter", "Prompt tokens looked up in the prefix cache.", STEP),
    Series("prefix_cache_hits", "counter", "Prompt tokens found in the prefix cache.", STEP),
    Series("num_preemptions", "counter", "Preemptions: running requests that had to give back their cache.", STEP),
    Series("corrupted_requests", "counter", "Requests that ended with an error because logits were no finite numbers.", STEP),
    Series("iteration_tokens_total", "histogram", "Tokens computed in a step.", STEP, family="iteration_tokens"),
    # tokens
    Series("prompt_tokens", "counter", "Prompt tokens processed, computed or found in a cache.", STEP),
    Series(
        "prompt_tokens_by_source",
        "counter",
        "Prompt tokens processed, by where their state came from. What a preempted request does again counts once.",
        STEP,
        "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    Series("prompt_tokens_cached", "counter", "Prompt tokens that came from a cache.", STEP),
    Series(
        "prompt_tokens_cached_by_source",
        "counter",
        "Prompt tokens that came from a cache, by its tier; octavo has the device's own.",
        STEP,
        "source",
        ("device", "host", "p2p", "disk", "external_unspecified"),
    ),
    Series("generation_tokens", "counter", "Tokens generated, as usage counts them, aborted requests included.", TOKEN),
    # requests
    Series(
        "request_success",
        "counter",
        "Sequences that ended, by reason, aborted and failed ones included; a request with n = 3 has three.",
        END,
        "finished_reason",
        ("stop", "length", "abort", "error", "repetition"),
    ),
    Series(
        "admission_rejections",
        "counter",
        "Requests refused by a limit of the queue.",
        "front end, when it refuses",
        "reason",
        ("max_num_queued_reqs", "max_num_queued_tokens"),
        own=("model_name",),
    ),
    Series("request_prompt_tokens", "histogram", "Prompt tokens of a sequence.", END, family="request_tokens"),
    Series("request_generation_tokens", "histogram", "Generated tokens of a sequence.", END, family="request_tokens"),
    Series(
        "request_max_num_generation_tokens",
        "histogram",
        "Generated tokens of the longest sequence of a request.",
        REQUEST_END,
        family="request_tokens",
    ),
    Series("request_params_n", "histogram", "n of a request.", REQUEST_END, family="request_params_n"),
    Series("request_params_max_tokens", "histogram", "max_tokens of a sequence, bounded by the context.", END, family="request_tokens"),
    Series("request_num_preemptions", "histogram", "Preemptions of a sequence.", END, family="request_num_preemptions"),
    Series(
        "request_prefill_kv_computed_tokens",
        "histogram",
        "Prompt tokens of a sequence that were computed, not found in a cache; for those that came to their first token.",
        END,
        family="request_tokens",
    ),
    # times
    Series("time_to_first_token_seconds", "histogram", "From arrival to the first token.", TOKEN, family="time_to_first_token"),
    Series("inter_token_latency_seconds", "histogram", "Between two tokens of a sequence.", TOKEN, family="inter_token_latency"),
    Series(
        "request_time_per_output_token_seconds",
        "histogram",
        "Mean time between the tokens of a sequence.",
        END,
        family="inter_token_latency",
    ),
    Series("e2e_request_latency_seconds", "histogram", "From arrival to the end of a sequence.", END, family="request_latency"),
    Series("request_queue_time_seconds", "histogram", "From arrival in the core to the first step.", END, family="request_latency"),
    Series("request_inference_time_seconds", "histogram", "From the first step to the last token.", END, family="request_latency"),
    Series("request_prefill_time_seconds", "histogram", "From the first step to the first token.", END, family="request_latency"),
    Series("request_decode_time_seconds", "histogram", "From the first token to the last.", END, family="request_latency"),
    # blocks, sampled
    Series(
        "kv_block_lifetime_seconds",
        "histogram",
        "From a cache block's allocation to its eviction.",
        STEP,
        family="kv_cache_residency",
        needs="--kv-cache-metrics",
    ),
    Series(
        "kv_block_idle_before_evict_seconds",
        "histogram",
        "From a cache block's last use to its eviction.",
        STEP,
        family="kv_cache_residency",
        needs="--kv-cache-metrics",
    ),
    Series(
        "kv_block_reuse_gap_seconds",
        "histogram",
        "Between two uses of a cache block, its allocation being the first.",
        STEP,
        family="kv_cache_residency",
        needs="--kv-cache-metrics",
    ),
)

# series of vLLM that have no meaning here yet: name, or the beginning of it -> what they await
AWAITED: dict[str, str] = {
    "external_prefix_cache_*": "KV connectors between instances",
    "mm_cache_*": "images, audio and video in prompts",
    "num_requests_kv_fetch_by_stage": "KV connectors that load asynchronously",
    "watermark_requests": "watermarks in generated text",
    "lora_requests_info": "LoRA adapters",
    "estimated_*_per_gpu": "--enable-mfu-metrics",
    "spec_decode_*": "speculative decoding",
    "diffusion_*": "diffusion language models",
    "sleep_mode_*": "sleep mode",
    "rl_weight_update_*": "weight updates at run time",
    "websocket_*": "the realtime API",
    "tool_call_parser_invocations": "tool calls",
    "kv_offload_*": "offloading of the cache to host memory or disk",
    "simple_kv_offload_*": "offloading of the cache to host memory or disk",
    "mooncake_*": "the Mooncake connector",
    "nixl_*": "the NIXL connector",
    "hf3fs_*": "the 3FS connector",
    "hisparse_*": "HiSparse",
    "umbp_*": "the UMBP connector",
}
