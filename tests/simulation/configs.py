"""Configurations for engines without a model: every field has a value, and a test names only those that it is about."""

from typing import Any

import msgspec

from octavo.config.config import CacheConfig, Config, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig

VOCABULARY = 11
EOS = 0

_MODEL = ModelConfig(
    name="echo",
    served_names=["echo"],
    path="echo",
    revision=None,
    tokenizer_path="echo",
    model_type="echo",
    hf_config={"max_position_embeddings": 256},
    generation_config={},
    default_sampling={},
    dtype="float32",
    max_model_len=64,
    is_max_model_len_auto=False,
    vocab_size=VOCABULARY,
    eos_token_ids=[EOS],
    bos_token_id=None,
    load_format="dummy",
    quantization=None,
    seed=0,
    max_logprobs=20,
    logprobs_mode="raw_logprobs",
    skip_tokenizer_init=True,
    chat_template=None,
    chat_template_content_format="auto",
    trust_special_tokens_in_content=False,
    disable_sliding_window=False,
)
_CACHE = CacheConfig(
    block_size=4,
    memory_utilization=0.9,
    memory_bytes=None,
    num_blocks_override=None,
    dtype="float32",
    prefix_caching=True,
    hash_algorithm="xxhash",
)
_SCHEDULER = SchedulerConfig(
    max_num_seqs=8,
    max_num_batched_tokens=64,
    chunked_prefill=True,
    long_prefill_token_threshold=0,
    prefill_schedule_interval=1,
    policy="fcfs",
    reserve_full_prompt=True,
    watermark=0.0,
    overlapped=False,
    max_num_queued_requests=None,
    stream_interval=1,
)
_DEVICE = DeviceConfig(device="cpu", threads=1, attention_backend=None, op_implementations="fast")
_PARALLEL = ParallelConfig(tensor_parallel_size=1, executor="in_process", core_in_process=True)
_PARTS = (_MODEL, _CACHE, _SCHEDULER)


def make_config(**values: Any) -> Config:
    """A configuration with these fields of its model, cache and scheduler parts changed."""
    model, cache, scheduler = (
        msgspec.structs.replace(part, **{name: values.pop(name) for name in list(values) if hasattr(part, name)}) for part in _PARTS
    )
    if values:
        raise TypeError(f"no part of the configuration has {', '.join(values)}")
    return Config(
        model=model, cache=cache, scheduler=scheduler, device=_DEVICE, parallel=_PARALLEL, log_level="INFO", log_stats=True, reasons=[]
    )
