"""Decisions of resolve(): each with its rule and its refusal."""

from typing import Any

import pytest

from octavo.config import layout, lengths, machine, resolve
from octavo.config.generation import default_sampling, end_tokens
from octavo.config.machine import MachineFacts
from octavo.config.options import Options, check
from octavo.config.quantization import decide_quantization
from octavo.errors import ConfigError, UnsupportedModelError
from tests.configs import make_model_config

MACHINE = MachineFacts(cores=4, total_bytes=100, available_bytes=80)
MODEL = make_model_config(dtype="bfloat16", max_model_len=8192)


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({}, None),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 4.0}}, 8192),
        ({"max_position_embeddings": 2048, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 4096),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 32768,
                "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {}},
            },
            262144,
        ),
    ],
)
def test_derived_length(config: dict[str, Any], length: int | None) -> None:
    assert lengths.derived_max_model_len(config) == length


def test_max_model_len() -> None:
    assert lengths.decide_max_model_len(None, 8192, False)[:2] == (8192, False)
    assert lengths.decide_max_model_len(-1, 8192, False)[:2] == (8192, True)
    assert lengths.decide_max_model_len(100, 8192, False)[:2] == (100, False)
    assert lengths.decide_max_model_len(9000, 8192, True)[:2] == (9000, False)
    with pytest.raises(ConfigError, match="greater than the 8192"):
        lengths.decide_max_model_len(9000, 8192, False)
    with pytest.raises(ConfigError, match="--max-model-len"):
        lengths.decide_max_model_len(None, None, False)


def test_generation_config() -> None:
    config = {"temperature": 0.6, "top_k": 20, "max_new_tokens": 100, "eos_token_id": [2, 3], "do_sample": True}
    assert default_sampling(config) == {"temperature": 0.6, "top_k": 20, "max_tokens": 100}
    assert end_tokens({"eos_token_id": 3}, config, {}) == [3, 2]


def test_unknown_model_type_lists_the_known() -> None:
    with pytest.raises(UnsupportedModelError, match="gpt_neo") as caught:
        resolve.decide_model_type({"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"]})
    assert "llama" in str(caught.value)


def test_scheduler_defaults_follow_usage() -> None:
    model = MODEL
    reasons: list[str] = []
    llm = resolve.decide_scheduler(Options(), model, "llm", reasons)
    server = resolve.decide_scheduler(Options(), model, "server", reasons)
    assert (llm.max_num_seqs, llm.max_num_batched_tokens) == (256, 4096)
    assert (server.max_num_seqs, server.max_num_batched_tokens) == (128, 2048)
    assert len(reasons) == 4
    whole = resolve.decide_scheduler(Options(enable_chunked_prefill=False), model, "server", reasons)
    assert whole.max_num_batched_tokens == 8192


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_num_seqs": 64, "max_num_batched_tokens": 32}, "smaller than max_num_seqs"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 1024}, "whole prompt"),
        ({"prefill_schedule_interval": 0}, "prefill_schedule_interval"),
        ({"watermark": 1.0}, "watermark"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"block_size": -1}, "block_size"),
        ({"num_gpu_blocks_override": 1}, "num_gpu_blocks_override"),
        ({"kv_cache_dtype": "float32"}, "kv_cache_dtype"),
        ({"cpu_threads": 0}, "cpu_threads"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size"),
    ],
)
def test_refusals(options: dict[str, Any], match: str) -> None:
    typed, model = Options(**options), MODEL

    def decide() -> None:
        check(typed)
        resolve.decide_scheduler(typed, model, "llm", [])
        resolve.decide_cache(typed, model, MACHINE, [])
        resolve.decide_device(typed, MACHINE, [])
        layout.decide_parallel(typed, [])

    with pytest.raises(ConfigError, match=match):
        decide()


@pytest.mark.parametrize(("available", "utilization"), [(80, 0.5), (60, 0.5), (40, 0.36), (0, 0.01)])
def test_default_utilization_is_half_or_most_of_what_is_free(available: int, utilization: float) -> None:
    machine = MachineFacts(cores=1, total_bytes=100, available_bytes=available)
    assert resolve.decide_cache(Options(), MODEL, machine, []).memory_utilization == utilization


def test_quantization_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="--quantization asks for 'int3'"):
        decide_quantization(Options(quantization="int3"), {}, [])
    with pytest.raises(ConfigError, match="quantization_config asks for 'quark'"):
        decide_quantization(Options(), {"quantization_config": {"quant_method": "quark"}}, [])


@pytest.mark.parametrize(
    ("typed", "stored", "model_type", "scheme"),
    [
        (None, "compressed-tensors", "llama", "compressed_tensors"),
        ("gptq_marlin", "gptq", "llama", "gptq"),
        ("modelopt_fp4", "modelopt", "llama", "modelopt"),
        ("gpt_oss_mxfp4", "mxfp4", "gpt_oss", "mxfp4"),
        (None, "fp8", "deepseek_v4", "deepseek_v4_fp8"),
        (None, "fp8", "deepseek_v3", "fp8"),
        ("fp8", "fp8", "deepseek_v4", "deepseek_v4_fp8"),
        ("deepseek_v4_fp8", "fp8", "deepseek_v4", "deepseek_v4_fp8"),
        ("nvfp4", None, "llama", "nvfp4"),
        ("mxfp8", "mxfp8", "llama", "mxfp8"),
    ],
)
def test_quantization_is_what_the_checkpoint_says_by_the_names_that_users_type(
    typed: str | None, stored: str | None, model_type: str, scheme: str
) -> None:
    config = {"model_type": model_type} | ({"quantization_config": {"quant_method": stored}} if stored else {})
    assert decide_quantization(Options(quantization=typed), config, []) == scheme
    assert decide_quantization(Options(), {}, []) is None


@pytest.mark.parametrize(("mode", "expected"), [("balanced", (128, 2048)), ("interactivity", (128, 2048)), ("throughput", (256, 4096))])
def test_the_performance_mode_doubles_the_defaults(mode: str, expected: tuple[int, int]) -> None:
    reasons: list[str] = []
    decided = resolve.decide_scheduler(Options(performance_mode=mode), MODEL, "server", reasons)
    assert (decided.max_num_seqs, decided.max_num_batched_tokens) == expected
    assert any(mode in reason for reason in reasons) is (mode != "balanced")
    typed = resolve.decide_scheduler(Options(performance_mode=mode, max_num_seqs=7, max_num_batched_tokens=70), MODEL, "server", [])
    assert (typed.max_num_seqs, typed.max_num_batched_tokens) == (7, 70)


def test_what_runs_is_no_more_than_the_worker_holds() -> None:
    decided = resolve.decide_scheduler(Options(max_num_seqs=8), MODEL, "llm", [])
    assert (decided.max_num_active_seqs, decided.max_num_scheduled_tokens) == (8, decided.max_num_batched_tokens)
    decided = resolve.decide_scheduler(Options(max_num_seqs=8, max_num_active_seqs=3, max_num_scheduled_tokens=99), MODEL, "llm", [])
    assert (decided.max_num_active_seqs, decided.max_num_scheduled_tokens) == (3, 99)
    for options, said in (({"max_num_active_seqs": 9}, "max_num_seqs"), ({"max_num_scheduled_tokens": 0}, "max_num_batched_tokens")):
        with pytest.raises(ConfigError, match=said):
            resolve.decide_scheduler(Options(max_num_seqs=8, **options), MODEL, "llm", [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "bfloat61"}, "did you mean bfloat16"),
        ({"kv_cache_dtype": "turboquant_k8v4"}, "awaits rotated and mixed caches"),
        ({"attention_backend": "flashinfer"}, "awaits GPUs; on a CPU there are CPU_ATTN and TORCH_SDPA"),
        ({"attention_backend": "XFORMERS"}, "vLLM has removed it too"),
        ({"attention_config": {"backend": "FLASH_ATTN"}}, "backend: awaits GPUs"),
        ({"attention_config": {"flash_attn_version": 3}}, "flash_attn_version: awaits GPUs"),
        ({"attention_config": {"bakend": "CPU_ATTN"}}, "did you mean backend"),
        ({"load_format": "pt"}, "opens no pickles"),
        ({"quantization": "quark"}, "awaits this number format"),
        ({"runner": "pooling"}, "awaits embeddings"),
        ({"tensor_parallel_size": 2}, "awaits tensor parallelism"),
        ({"device": "cuda"}, "awaits GPUs"),
        ({"model_impl": "transformers"}, "awaits models that transformers computes"),
    ],
)
def test_values_are_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(Options(**options))
    assert said in str(caught.value)


def test_an_attention_config_is_its_flags() -> None:
    assert resolve.spread(Options(attention_config={"backend": "TORCH_SDPA"})).attention_backend == "TORCH_SDPA"
    assert resolve.spread(Options(attention_config={"backend": "auto"})).attention_backend is None
    both = Options(attention_config={"backend": "TORCH_SDPA"}, attention_backend="CPU_ATTN")
    assert resolve.spread(both).attention_backend == "CPU_ATTN"


YARN = {"rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(
    ("stored", "over", "expected"),
    [
        ({"rope_scaling": None}, {"rope_scaling": YARN}, YARN),
        ({"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 1}}, {"rope_scaling": YARN}, YARN),
        ({"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 1}}, {"rope_parameters": YARN}, YARN),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, {"rope_scaling": YARN}, YARN | {"rope_theta": 5e5}),
        ({"rope_parameters": {"rope_theta": 5e5}}, {"rope_parameters": YARN | {"rope_theta": 1.0}}, YARN | {"rope_theta": 1.0}),
    ],
)
def test_a_named_way_of_rotating_replaces_the_stored_one(stored: dict[str, Any], over: dict[str, Any], expected: dict[str, Any]) -> None:
    result = resolve.override({"a": {"b": 1}, **stored}, {"a": {"c": 2}, **over})
    assert result == {"a": {"b": 1, "c": 2}, "rope_parameters": expected}
    assert resolve.override({"rope_parameters": {"factor": 2.0}}, {"rope_parameters": {"factor": 4.0}}) == {
        "rope_parameters": {"factor": 4.0}
    }


def test_cores_are_named_as_ranges() -> None:
    assert machine.parse_cores("0-2, 6,1") == [0, 1, 2, 6]
    for wrong in ("", "a", "3-1", "1-", "-1", "99999"):
        with pytest.raises(ConfigError, match="names no cores"):
            machine.parse_cores(wrong)
