"""Config: every decision, made and frozen. Made by resolve(); nothing is optional that somebody has to guess later."""

from typing import Any

import msgspec


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
    chat_template: str | None
    chat_template_content_format: str
    trust_special_tokens_in_content: bool
    disable_sliding_window: bool


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
    max_num_batched_tokens: int
    chunked_prefill: bool
    long_prefill_token_threshold: int  # 0 = none
    prefill_schedule_interval: int
    policy: str  # "fcfs" | "priority"
    reserve_full_prompt: bool
    watermark: float
    overlapped: bool  # plan step n+1 while n computes
    max_num_queued_requests: int | None
    stream_interval: int


class DeviceConfig(msgspec.Struct, frozen=True, kw_only=True):
    device: str  # "cpu"
    threads: int
    attention_backend: str | None  # None: the first that does not refuse
    op_implementations: str  # "fast" | "reference"


class ParallelConfig(msgspec.Struct, frozen=True, kw_only=True):
    tensor_parallel_size: int
    executor: str  # "in_process" | "processes"
    core_in_process: bool


class Config(msgspec.Struct, frozen=True, kw_only=True):
    model: ModelConfig
    cache: CacheConfig
    scheduler: SchedulerConfig
    device: DeviceConfig
    parallel: ParallelConfig
    log_level: str
    log_stats: bool
    reasons: list[str]  # why each computed value is what it is, for the log
