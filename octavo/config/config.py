"""Config: every decision, made and frozen. Made by resolve(); nothing is optional that somebody has to guess later."""

from typing import Any

import msgspec

from octavo.logging import LogSettings


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # as the user typed it
    served_names: list[str]
    path: str  # the local folder, or the .gguf file
    revision: str | None
    tokenizer_path: str
    model_type: str  # file name in octavo/models
    hf_config: dict[str, Any]  # config.json (or what the GGUF header says, in the same words), overrides applied
    generation_config: dict[str, Any]  # generation_config.json with --override-generation-config applied; {} for "vllm"
    default_sampling: dict[str, Any]  # the sampling fields of the above
    dtype: str  # "bfloat16" | "float32" | "float16"
    max_model_len: int  # 0 until the cache is known, when it was "auto"
    is_max_model_len_auto: bool
    vocab_size: int
    eos_token_ids: list[int]
    bos_token_id: int | None
    load_format: str  # "auto" resolved: "safetensors" | "gguf" | "dummy"
    quantization: str | None
    seed: int
    max_logprobs: int
    logprobs_mode: str
    skip_tokenizer_init: bool
    renderer: str | None  # file in octavo/text/renderers that makes prompts of conversations; None: the chat template does
    chat_template: str | None
    chat_template_content_format: str
    trust_special_tokens_in_content: bool
    disable_sliding_window: bool
    quantization_config: dict[str, Any] = {}  # --quantization-config: how a plain checkpoint is quantized while it is loaded
    num_tokens: int | None = None  # told by the front end's tokenizer: ids from here on have no text and are never sampled; None = no such

    def with_tokens_of(self, size: int | None) -> "ModelConfig":
        """The same with a tokenizer of so many ids: a model's vocabulary may be padded. A token that ends a text counts, whatever it is."""
        if size is None:
            return self
        return msgspec.structs.replace(self, num_tokens=min(self.vocab_size, max(size, *(token + 1 for token in self.eos_token_ids), 1)))

    @property
    def sampled_ids(self) -> int:
        """Token ids below this can be sampled."""
        return self.vocab_size if self.num_tokens is None else self.num_tokens


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    block_size: int
    memory_utilization: float
    memory_bytes: int | None  # --kv-cache-memory-bytes
    num_blocks_override: int | None
    dtype: str  # resolved from auto; a name in octavo/config/cache_formats.py
    skipped_layers: list[str]  # numbers of layers, or "sliding_window": they keep the model's own numbers
    prefix_caching: bool
    hash_algorithm: str


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    max_num_seqs: int
    max_num_active_seqs: int  # that run at a time; max_num_seqs sizes the worker
    max_num_batched_tokens: int
    max_num_scheduled_tokens: int  # of a step; max_num_batched_tokens sizes the worker
    chunked_prefill: bool
    long_prefill_token_threshold: int  # 0 = none
    long_prefill_token_threshold_adaptive: bool
    prefill_schedule_interval: int
    policy: str  # "fcfs" | "priority"
    reserve_full_prompt: bool
    watermark: float
    overlapped: bool  # plan step n+1 while n computes
    max_num_queued_requests: int | None
    max_num_queued_tokens: int | None  # prompt tokens
    stream_interval: int


class DeviceConfig(msgspec.Struct, frozen=True, kw_only=True):
    device: str  # "cpu"
    threads: int
    cores: list[int] | None  # that the threads may run on; None: any
    attention_backend: str | None  # None: the first that does not refuse
    op_implementations: str  # "fast" | "reference"
    tape_rows: int = 0  # steps of single tokens of at most so many rows are recorded once and replayed; 0: none


class ParallelConfig(msgspec.Struct, frozen=True, kw_only=True):
    tensor_parallel_size: int
    executor: str  # "in_process" | "processes"
    core_in_process: bool


class ObservabilityConfig(msgspec.Struct, frozen=True, kw_only=True):
    metrics_prefix: str
    histogram_buckets: dict[str, list[float]]  # by family, where they differ from the defaults
    cache_sample: float  # share of the cache blocks whose stays are measured; 0 = none
    traces_endpoint: str | None
    traces_protocol: str  # "grpc" | "http/protobuf"


class GrammarConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Structured output (--structured-outputs-config)."""

    backend: str = "guidance"  # file name in octavo/grammar/backends
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    enable_in_reasoning: bool = False  # the grammar binds from the first token, reasoning included
    close_at_max_tokens: bool = False  # near max_tokens a document is brought to its end


class Config(msgspec.Struct, frozen=True, kw_only=True):
    model: ModelConfig
    cache: CacheConfig
    scheduler: SchedulerConfig
    device: DeviceConfig
    parallel: ParallelConfig
    observability: ObservabilityConfig
    grammar: GrammarConfig = GrammarConfig()
    log_level: str
    log: LogSettings
    log_stats: bool
    log_iterations: bool  # a line for each step
    load_progress: bool  # tell how far the reading of weights is
    renderer_threads: int
    reasoning_parser: str | None = None  # as typed; the front end settles it when the tokenizer is there
    reasoning_parser_plugin: str = ""
    reasons: list[str]  # why each computed value is what it is, for the log
