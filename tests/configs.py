"""Configurations made by hand: every field has a plain value, and a test names only those that it is about."""

from typing import Any

from octavo.config.config import CacheConfig, Config, DeviceConfig, ModelConfig, ObservabilityConfig, ParallelConfig, SchedulerConfig
from octavo.logging import LogSettings

_MODEL: dict[str, Any] = {
    "revision": None,
    "model_type": "llama",
    "hf_config": {},
    "generation_config": {},
    "default_sampling": {},
    "dtype": "float32",
    "max_model_len": 256,
    "is_max_model_len_auto": False,
    "vocab_size": 11,
    "eos_token_ids": [2],
    "bos_token_id": None,
    "load_format": "dummy",
    "quantization": None,
    "seed": 0,
    "max_logprobs": 20,
    "logprobs_mode": "raw_logprobs",
    "skip_tokenizer_init": True,
    "renderer": None,
    "chat_template": None,
    "chat_template_content_format": "auto",
    "trust_special_tokens_in_content": False,
    "disable_sliding_window": False,
}
_CACHE: dict[str, Any] = {
    "block_size": 16,
    "memory_utilization": 0.5,
    "memory_bytes": None,
    "num_blocks_override": None,
    "skipped_layers": [],
    "prefix_caching": True,
    "hash_algorithm": "sha256",
}
_SCHEDULER: dict[str, Any] = {
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "prefill_schedule_interval": 1,
    "policy": "fcfs",
    "reserve_full_prompt": True,
    "watermark": 0.0,
    "overlapped": True,
    "max_num_queued_requests": None,
    "max_num_queued_tokens": None,
    "stream_interval": 1,
}
_DEVICE: dict[str, Any] = {
    "device": "cpu",
    "threads": 1,
    "cores": None,
    "attention_backend": None,
    "op_implementations": "fast",
    "tape_rows": 64,
}
_PARALLEL: dict[str, Any] = {"tensor_parallel_size": 1, "executor": "in_process", "core_in_process": True}
_OBSERVABILITY: dict[str, Any] = {
    "metrics_prefix": "vllm:",
    "histogram_buckets": {},
    "cache_sample": 0.0,
    "traces_endpoint": None,
    "traces_protocol": "grpc",
}
_WHOLE: dict[str, Any] = {
    "log_level": "INFO",
    "log": LogSettings(),
    "log_stats": True,
    "log_iterations": False,
    "load_progress": True,
    "renderer_threads": 2,
    "reasons": [],
}
_FOLLOWING = {"max_num_active_seqs": "max_num_seqs", "max_num_scheduled_tokens": "max_num_batched_tokens"}


def make_model_config(*, name: str = "made", **fields: Any) -> ModelConfig:
    """A model that is called, served and looked for by its name, where nothing else is said."""
    return ModelConfig(**{**_MODEL, "name": name, "served_names": [name], "path": name, "tokenizer_path": name, **fields})


def make_config(*, cache_dtype: str | None = None, **fields: Any) -> Config:
    """A configuration with these fields of any of its parts. The cache has the model's dtype unless cache_dtype says another."""
    model = make_model_config(**_take(fields, ModelConfig.__struct_fields__))
    scheduler = {**_SCHEDULER, **_take(fields, [*_SCHEDULER, *_FOLLOWING])}
    for name, followed in _FOLLOWING.items():
        scheduler.setdefault(name, scheduler[followed])
    return Config(
        model=model,
        cache=CacheConfig(**{**_CACHE, "dtype": cache_dtype or model.dtype, **_take(fields, _CACHE)}),
        scheduler=SchedulerConfig(**scheduler),
        device=DeviceConfig(**{**_DEVICE, **_take(fields, _DEVICE)}),
        parallel=ParallelConfig(**{**_PARALLEL, **_take(fields, _PARALLEL)}),
        observability=ObservabilityConfig(**{**_OBSERVABILITY, **_take(fields, _OBSERVABILITY)}),
        **{**_WHOLE, **fields},
    )


def _take(fields: dict[str, Any], names: Any) -> dict[str, Any]:
    return {name: fields.pop(name) for name in list(fields) if name in names}
