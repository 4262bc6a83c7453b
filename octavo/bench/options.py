"""Options of the benches, each field once: command lines and the docs page are made from them. What awaits a feature is refused by name.

The names and defaults are vLLM's, so that a command written for it means the same here.
"""

from dataclasses import dataclass, fields
from typing import Any

from octavo.config.numbers import parse_count
from octavo.config.options import option
from octavo.errors import ConfigError

DATASETS = ("burstgpt", "custom", "prefix_repetition", "random", "sharegpt", "timed_trace")
LATER_DATASETS = {
    "random-mm": "multimodal models",
    "random-rerank": "reranking models",
    "hf": "the datasets library",
    "custom_audio": "audio models",
    "custom_image": "multimodal models",
    "spec_bench": "speculative decoding",
    "speed_bench": "speculative decoding",
}
BACKENDS = ("openai", "vllm", "openai-chat")
LATER_BACKENDS = {
    "openai-responses": "/v1/responses",
    "openai-audio": "audio models",
    "openai-embeddings": "/v1/embeddings",
    "openai-embeddings-chat": "/v1/embeddings",
    "openai-embeddings-clip": "/v1/embeddings",
    "openai-embeddings-vlm2vec": "/v1/embeddings",
    "infinity-embeddings": "/v1/embeddings",
    "infinity-embeddings-clip": "/v1/embeddings",
    "vllm-pooling": "/pooling",
    "vllm-rerank": "/v1/rerank",
}
# option -> the feature that it waits for; it may be given with its default only
NOT_YET = "not yet:"  # what the help of an option begins with whose feature is missing
LATER = {
    "profile": "the profiler's endpoints",
    "lora_modules": "LoRA adapters",
    "lora_path": "LoRA adapters",
    "hf_subset": "the datasets library",
    "hf_split": "the datasets library",
    "hf_name": "the datasets library",
    "hf_output_len": "the datasets library",
    "enable_multimodal_chat": "multimodal models",
    "custom_ensure_client_side_data": "multimodal models",
    "random_mm_base_items_per_request": "multimodal models",
    "random_mm_num_mm_items_range_ratio": "multimodal models",
    "random_mm_limit_mm_per_prompt": "multimodal models",
    "random_mm_bucket_config": "multimodal models",
    "blazedit_min_distance": "the datasets library",
    "blazedit_max_distance": "the datasets library",
    "asr_min_audio_len_sec": "audio models",
    "asr_max_audio_len_sec": "audio models",
    "bfcl_categories": "the datasets library",
    "spec_bench_output_len": "speculative decoding",
    "spec_bench_category": "speculative decoding",
    "speed_bench_dataset_subset": "speculative decoding",
    "speed_bench_output_len": "speculative decoding",
    "speed_bench_category": "speculative decoding",
    "random_batch_size": "embedding models",
    "reranker": "reranking models",
    "prequeue_requests": "a scheduler that can be paused",
    "hf_max_batch_size": "nothing: benchmarks of other engines are not octavo's",
    "hf_enable_torch_compile": "nothing: benchmarks of other engines are not octavo's",
}


def _count(default: int | None, help_text: str, group: str) -> Any:
    return option(default, help_text, group, kind="int", parse=parse_count)


def _later(name: str, default: Any, group: str, **kind: Any) -> Any:
    return option(default, f"{NOT_YET} awaits {LATER[name]}", group, **kind)


@dataclass(kw_only=True)
class DatasetOptions:
    """What prompts are made of."""

    seed: int = option(0, "seed of lengths, texts, order and arrival times", "Dataset", kind="int")
    num_prompts: int = _count(1000, "number of requests", "Dataset")
    dataset_name: str = option("random", "dataset", "Dataset", choices=(*DATASETS, *LATER_DATASETS))
    dataset_path: str | None = option(None, "file of the dataset", "Dataset")
    input_len: int | None = _count(None, "prompt tokens, for any dataset that can choose them", "Dataset")
    output_len: int | None = _count(None, "output tokens, for any dataset", "Dataset")
    stream: bool = option(True, "read datasets of the hub as a stream; accepted", "Dataset", kind="switch")
    oversample: bool = option(True, "repeat samples when a file has fewer than --num-prompts", "Dataset", kind="switch")
    skip_chat_template: bool = option(False, "custom: prompts are sent as they stand in the file", "Dataset", kind="switch")
    disable_shuffle: bool = option(False, "take the samples of a file in its order", "Dataset", kind="switch")
    trust_remote_code: bool = option(False, "accepted; octavo runs no code from checkpoints", "Dataset", kind="switch")
    chat_template_kwargs: dict[str, Any] = option(
        {}, "JSON: variables of the chat template that custom prompts are rendered with", "Dataset", kind="json"
    )

    random_input_len: int = _count(1024, "prompt tokens", "Dataset random")
    random_output_len: int = _count(128, "output tokens", "Dataset random")
    random_range_ratio: str = option(
        "0.0", 'r: lengths are drawn from [len * (1 - r), len * (1 + r)]; JSON {"input": r, "output": r} for two', "Dataset random"
    )
    random_prefix_len: int = _count(0, "tokens that all prompts begin with, beside the prompt's own", "Dataset random")
    random_batch_size: int = _later("random_batch_size", 1, "Dataset random", kind="int")

    sharegpt_output_len: int | None = _count(None, "output tokens; default: as long as the answer in the file", "Dataset sharegpt")
    custom_output_len: int = _count(256, "output tokens; -1 = the output_tokens of each line", "Dataset custom")

    prefix_repetition_prefix_len: int = _count(256, "tokens of a prefix", "Dataset prefix_repetition")
    prefix_repetition_suffix_len: int = _count(256, "tokens of a prompt after its prefix", "Dataset prefix_repetition")
    prefix_repetition_num_prefixes: int = _count(10, "number of prefixes", "Dataset prefix_repetition")
    prefix_repetition_output_len: int = _count(128, "output tokens", "Dataset prefix_repetition")

    timed_trace_chunk_hash_size: int = _count(16, "prompt tokens that one hash id stands for", "Dataset timed_trace")
    timed_trace_sec_multiplier: float = option(1.0, "seconds in one unit of the timestamps", "Dataset timed_trace", kind="float")
    timed_trace_label_timestamp: str = option("timestamp", "key of the timestamp", "Dataset timed_trace")
    timed_trace_label_input_length: str = option("input_length", "key of the prompt's tokens", "Dataset timed_trace")
    timed_trace_label_output_length: str = option("output_length", "key of the output's tokens", "Dataset timed_trace")
    timed_trace_label_hash_ids: str = option("hash_ids", "key of the prompt's hash ids", "Dataset timed_trace")

    enable_multimodal_chat: bool = _later("enable_multimodal_chat", False, "Not yet", kind="switch")
    custom_ensure_client_side_data: bool = _later("custom_ensure_client_side_data", False, "Not yet", kind="switch")
    random_mm_base_items_per_request: str | None = _later("random_mm_base_items_per_request", None, "Not yet")
    random_mm_num_mm_items_range_ratio: str | None = _later("random_mm_num_mm_items_range_ratio", None, "Not yet")
    random_mm_limit_mm_per_prompt: str | None = _later("random_mm_limit_mm_per_prompt", None, "Not yet")
    random_mm_bucket_config: str | None = _later("random_mm_bucket_config", None, "Not yet")
    spec_bench_output_len: int | None = _later("spec_bench_output_len", None, "Not yet", kind="int")
    spec_bench_category: str | None = _later("spec_bench_category", None, "Not yet")
    speed_bench_dataset_subset: str | None = _later("speed_bench_dataset_subset", None, "Not yet")
    speed_bench_output_len: int | None = _later("speed_bench_output_len", None, "Not yet", kind="int")
    speed_bench_category: str | None = _later("speed_bench_category", None, "Not yet")
    blazedit_min_distance: float | None = _later("blazedit_min_distance", None, "Not yet", kind="float")
    blazedit_max_distance: float | None = _later("blazedit_max_distance", None, "Not yet", kind="float")
    asr_min_audio_len_sec: float | None = _later("asr_min_audio_len_sec", None, "Not yet", kind="float")
    asr_max_audio_len_sec: float | None = _later("asr_max_audio_len_sec", None, "Not yet", kind="float")
    hf_subset: str | None = _later("hf_subset", None, "Not yet")
    hf_split: str | None = _later("hf_split", None, "Not yet")
    hf_name: str | None = _later("hf_name", None, "Not yet")
    hf_output_len: int | None = _later("hf_output_len", None, "Not yet", kind="int")
    bfcl_categories: str | None = _later("bfcl_categories", None, "Not yet")
    reranker: bool = _later("reranker", True, "Not yet", kind="switch")


@dataclass(kw_only=True)
class ServeOptions(DatasetOptions):
    """Options of `octavo bench serve`."""

    backend: str = option(
        "openai", "what is asked: openai = vllm = completions, openai-chat", "Server", choices=(*BACKENDS, *LATER_BACKENDS)
    )
    base_url: str | None = option(None, "http://..., https://... or unix:PATH, instead of host and port", "Server")
    host: str = option("127.0.0.1", "host of the server", "Server")
    port: int = option(8000, "port of the server", "Server", kind="int")
    endpoint: str = option("/v1/completions", "path; with openai-chat the default is /v1/chat/completions", "Server")
    header: list[str] = option([], "NAME=VALUE ... sent with each request", "Server", kind="list")
    insecure: bool = option(False, "https: do not check the certificate", "Server", kind="switch")
    ready_check_timeout_sec: float = option(0, "seconds to wait until a first request is answered; 0 = do not ask", "Server", kind="float")
    request_timeout_sec: float = option(21_600, "seconds after which a request has failed", "Server", kind="float")
    model: str | None = option(None, "the model; default: the first that the server names", "Server")
    served_model_name: str | None = option(None, "the model's name in requests, where it is not --model", "Server")
    tokenizer: str | None = option(None, "folder, .gguf file, catalog name or hub id; default: that of the model", "Server")
    tokenizer_mode: str = option("auto", "accepted: there is one kind", "Server", choices=("auto", "hf", "slow", "mistral"))
    skip_tokenizer_init: bool = option(
        False, "no tokenizer: only custom prompts, lengths as the server tells them", "Server", kind="switch"
    )

    request_rate: float = option(float("inf"), "requests a second; inf = all at once", "Load", kind="float")
    burstiness: float = option(
        1.0, "shape of the gamma distribution of the intervals; 1 = Poisson, smaller = burstier", "Load", kind="float"
    )
    max_concurrency: int | None = _count(None, "most requests at once; the others wait their turn", "Load")
    ramp_up_strategy: str | None = option(None, "let the rate grow instead of --request-rate", "Load", choices=("linear", "exponential"))
    ramp_up_start_rps: float | None = option(None, "requests a second at first", "Load", kind="float")
    ramp_up_end_rps: float | None = option(None, "requests a second at last", "Load", kind="float")
    self_timed: bool | None = option(None, "send when the dataset says; default: only timed_trace", "Load", kind="switch")
    probe_request_rate: float = option(0.0, "one-token requests a second beside the load, reported apart", "Load", kind="float")
    num_warmups: int = _count(0, "requests before the measured ones", "Load")
    request_id_prefix: str | None = option(None, "what X-Request-Id begins with; default: bench- and a random part", "Load")

    ignore_eos: bool = option(False, "generate to the full length", "Sampling", kind="switch")
    temperature: float | None = option(None, "default: the server's", "Sampling", kind="float")
    top_p: float | None = option(None, "default: the server's", "Sampling", kind="float")
    top_k: int | None = option(None, "default: the server's", "Sampling", kind="int")
    min_p: float | None = option(None, "default: the server's", "Sampling", kind="float")
    frequency_penalty: float | None = option(None, "default: the server's", "Sampling", kind="float")
    presence_penalty: float | None = option(None, "default: the server's", "Sampling", kind="float")
    repetition_penalty: float | None = option(None, "default: the server's", "Sampling", kind="float")
    logprobs: int | None = option(None, "log-probabilities for each token", "Sampling", kind="int")
    use_beam_search: bool = option(False, "ask for a beam search", "Sampling", kind="switch")
    extra_body: dict[str, Any] = option({}, "JSON: more fields of each request", "Sampling", kind="json")

    percentile_metrics: str = option("ttft,tpot,itl", "what is reported: ttft, tpot, itl, e2el, client_queue_time", "Report")
    metric_percentiles: str = option("99", "percentiles of each, with commas between", "Report")
    goodput: list[str] = option([], "ttft:MS tpot:MS e2el:MS: limits that a good request keeps", "Report", kind="list")
    disable_tqdm: bool = option(False, "no progress on standard error", "Report", kind="switch")
    label: str | None = option(None, "name of the run; default: the backend's", "Report")
    metadata: list[str] = option([], "KEY=VALUE ... kept in the result", "Report", kind="list")
    save_result: bool = option(False, "write the result as JSON", "Report", kind="switch")
    save_detailed: bool = option(False, "with each request's figures and text", "Report", kind="switch")
    append_result: bool = option(False, "add to the file instead of replacing it", "Report", kind="switch")
    result_dir: str | None = option(None, "folder of the result; default: here", "Report")
    result_filename: str | None = option(None, "name of the result; default: label, rate, model and time", "Report")
    plot_timeline: bool = option(
        False, "PNG of every request in time, of latencies and of throughput (extra bench)", "Report", kind="switch"
    )
    timeline_itl_thresholds: str = option("25,50", "milliseconds between tokens at which the timeline changes its colour", "Report")
    plot_dataset_stats: bool = option(False, "PNG of the lengths of prompts and outputs (extra bench)", "Report", kind="switch")

    profile: bool = _later("profile", False, "Not yet", kind="switch")
    lora_modules: list[str] | None = _later("lora_modules", None, "Not yet", kind="list")
    lora_assignment: str = option("random", "how --lora-modules are chosen", "Not yet", choices=("random", "round-robin"))


@dataclass(kw_only=True)
class ThroughputOptions(DatasetOptions):
    """Options of `octavo bench throughput` beside the engine's."""

    dataset_name: str = option(
        "sharegpt", "dataset; without --dataset-path and with --input-len it is random", "Dataset", choices=(*DATASETS, *LATER_DATASETS)
    )
    prefix_len: int = _count(0, "the same as --random-prefix-len", "Dataset random")
    backend: str = option("vllm", "vllm = this engine; vllm-chat = its chat", "Run", choices=("vllm", "vllm-chat", "hf", "mii"))
    n: int = option(1, "sequences of each prompt", "Run", kind="int")
    num_warmups: int = _count(0, "prompts before the measured ones", "Run")
    async_engine: bool = option(False, "the engine of the server, without HTTP", "Run", kind="switch")
    disable_detokenize: bool = option(False, "outputs are not made text", "Run", kind="switch")
    output_json: str | None = option(None, "file of the result", "Run")
    prequeue_requests: bool = _later("prequeue_requests", False, "Not yet", kind="switch")
    profile: bool = _later("profile", False, "Not yet", kind="switch")
    lora_path: str | None = _later("lora_path", None, "Not yet")
    lora_assignment: str = option("random", "how adapters are chosen", "Not yet", choices=("random", "round-robin"))
    hf_max_batch_size: int | None = _later("hf_max_batch_size", None, "Not yet", kind="int")
    hf_enable_torch_compile: bool = _later("hf_enable_torch_compile", False, "Not yet", kind="switch")


@dataclass(kw_only=True)
class LatencyOptions:
    """Options of `octavo bench latency` beside the engine's."""

    input_len: int = _count(32, "tokens of each prompt", "Run")
    output_len: int = _count(128, "tokens of each output", "Run")
    batch_size: int = _count(8, "prompts at once", "Run")
    n: int = option(1, "sequences of each prompt; the width of a beam search", "Run", kind="int")
    use_beam_search: bool = option(False, "beam search instead of sampling", "Run", kind="switch")
    num_iters_warmup: int = _count(10, "rounds before the measured ones", "Run")
    num_iters: int = _count(30, "measured rounds", "Run")
    disable_detokenize: bool = option(False, "outputs are not made text", "Run", kind="switch")
    output_json: str | None = option(None, "file of the result", "Run")
    profile: bool = _later("profile", False, "Not yet", kind="switch")


@dataclass(kw_only=True)
class StartupOptions:
    """Options of `octavo bench startup` beside the engine's."""

    num_iters_cold: int = _count(3, "starts without compiled kernels", "Run")
    num_iters_warmup: int = _count(1, "starts before the warm ones", "Run")
    num_iters_warm: int = _count(3, "starts with compiled kernels", "Run")
    output_json: str | None = option(None, "file of the result", "Run")


@dataclass(kw_only=True)
class QualityOptions:
    """Options of `octavo bench quality` beside the models and the engine's."""

    text: str | None = option(None, "file of the text whose perplexity is measured", "Run")
    tokens: int = _count(5120, "tokens of it that are used", "Run")
    window: int = _count(512, "tokens that are seen at once", "Run")
    output_len: int = _count(32, "tokens that the latency is measured over", "Run")
    output_json: str | None = option(None, "file of the result, written after each model", "Run")
    resume: bool = option(False, "take the rows that are in --output-json already, and measure the others", "Run", kind="switch")


@dataclass(kw_only=True)
class StepOptions:
    """Options of `octavo bench step` beside the model and the engine's."""

    batch: int = _count(1, "requests that a step generates for, or whose prompts it computes", "Run")
    context: int = _count(128, "tokens that each has when the steps are measured; of the prompt with --prefill", "Run")
    prefill: bool = option(False, "steps that compute prompts instead of ones that generate", "Run", kind="switch")
    profile: bool = option(False, "time every kernel, and tell how fast it read its weights", "Run", kind="switch")
    num_iters: int = _count(32, "measured steps", "Run")
    output_json: str | None = option(None, "file of the result", "Run")


def check(options: Any) -> None:
    """Raise ConfigError for an option whose feature does not exist yet, and for a number that cannot be."""
    for f in fields(options):
        if f.metadata["help"].startswith(NOT_YET) and getattr(options, f.name) != f.default:
            raise _awaits("--" + f.name.replace("_", "-"), LATER[f.name])
        if f.name.startswith(("num_", "max_concurrency", "batch_size")) and (getattr(options, f.name) or 0) < 0:
            raise ConfigError(f"--{f.name.replace('_', '-')} must not be negative")
    if (dataset := getattr(options, "dataset_name", None)) in LATER_DATASETS:
        raise _awaits(f"--dataset-name {dataset}", LATER_DATASETS[dataset], f"there are {', '.join(DATASETS)}")
    if (backend := getattr(options, "backend", None)) in LATER_BACKENDS:
        raise _awaits(f"--backend {backend}", LATER_BACKENDS[backend], f"there are {', '.join(BACKENDS)}")
    if backend in ("hf", "mii"):
        raise ConfigError(f"--backend {backend} is another engine, and octavo measures itself", "leave it away")


def _awaits(what: str, feature: str, hint: str = "leave it away") -> ConfigError:
    return ConfigError(f"{what} is not available in this version of octavo: it awaits {feature}", hint)
