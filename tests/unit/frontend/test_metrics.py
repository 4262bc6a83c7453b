"""Metrics: the names that dashboards know, and accounts that add up for every way in which a request can end."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as TheirCounter
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from octavo.config.observability import BUCKET_FAMILIES
from octavo.errors import GenerationError, RequestError
from octavo.frontend.instruments import Counter, Family, Histogram
from octavo.frontend.metrics import Metrics
from octavo.frontend.series import AWAITED, BUCKETS, SERIES, one_two_five
from octavo.protocol.messages import EngineFacts, EngineStats
from octavo.protocol.sampling_params import RequestOutputKind, SamplingParams
from octavo.text.tokenizer import Tokenizer
from tests import configs
from tests.unit.frontend.scripted import ScriptedEngine
from tests.unit.frontend.test_async_llm import running

# vLLM 0.33's series that have a meaning here: type, labels beside model_name and engine (or all of them), first and last bucket
CONTRACT: dict[str, tuple[Any, ...]] = {
    "num_requests_running": ("gauge",),
    "num_requests_waiting": ("gauge",),
    "num_requests_waiting_by_reason": ("gauge", "reason"),
    "engine_sleep_state": ("gauge", "sleep_state"),
    "kv_cache_usage_perc": ("gauge",),
    "prefix_cache_queries": ("counter",),
    "prefix_cache_hits": ("counter",),
    "num_preemptions": ("counter",),
    "prompt_tokens": ("counter",),
    "prompt_tokens_by_source": ("counter", "source"),
    "prompt_tokens_cached": ("counter",),
    "prompt_tokens_cached_by_source": ("counter", "source"),
    "generation_tokens": ("counter",),
    "request_success": ("counter", "finished_reason"),
    "corrupted_requests": ("counter",),
    "request_prompt_tokens": ("histogram", "", 1, 200),
    "request_generation_tokens": ("histogram", "", 1, 200),
    "iteration_tokens_total": ("histogram", "", 1, 16384),
    "request_max_num_generation_tokens": ("histogram", "", 1, 200),
    "request_params_n": ("histogram", "", 1, 20),
    "request_params_max_tokens": ("histogram", "", 1, 200),
    "time_to_first_token_seconds": ("histogram", "", 0.001, 2560),
    "inter_token_latency_seconds": ("histogram", "", 0.01, 80),
    "request_time_per_output_token_seconds": ("histogram", "", 0.01, 80),
    "e2e_request_latency_seconds": ("histogram", "", 0.3, 7680),
    "request_queue_time_seconds": ("histogram", "", 0.3, 7680),
    "request_inference_time_seconds": ("histogram", "", 0.3, 7680),
    "request_prefill_time_seconds": ("histogram", "", 0.3, 7680),
    "request_decode_time_seconds": ("histogram", "", 0.3, 7680),
    "request_num_preemptions": ("histogram", "", 1, 20),
    "request_prefill_kv_computed_tokens": ("histogram", "", 1, 200),
    "kv_block_lifetime_seconds": ("histogram", "", 0.001, 1800),
    "kv_block_idle_before_evict_seconds": ("histogram", "", 0.001, 1800),
    "kv_block_reuse_gap_seconds": ("histogram", "", 0.001, 1800),
}
FACTS = EngineFacts(256, 16, 64, 1024, 4.0, 1 << 20, 1 << 20, 0, 0, core_pid=0)


def make(**changes: Any) -> Metrics:
    return Metrics(configs.make_config(**changes), FACTS)


def samples(metrics: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for family in metrics.collect():
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def test_names_types_labels_and_buckets_are_vllm_s() -> None:
    families = {family.name: family for family in make(cache_sample=1.0).collect()}
    for name, (kind, *rest) in CONTRACT.items():
        family = families.pop(f"vllm:{name}")
        assert family.type == kind, name
        own = {"model_name", "engine"} | ({rest[0]} if rest and rest[0] else set())
        assert {frozenset(s.labels) - {"le"} for s in family.samples} == {frozenset(own)}, name
        if kind == "histogram":
            bounds = [float(s.labels["le"]) for s in family.samples if s.name.endswith("_bucket")]
            assert (bounds[0], bounds[-2], bounds[-1]) == (rest[1], rest[2], float("inf")), name
    refused = families.pop("vllm:admission_rejections")
    labels = [s.labels for s in refused.samples if s.name.endswith("_total")]
    assert labels == [{"model_name": "made", "reason": r} for r in ("max_num_queued_reqs", "max_num_queued_tokens")]
    cache = families.pop("vllm:cache_config_info")
    assert cache.samples[0].value == 1
    assert {"block_size": "16", "num_gpu_blocks": "64", "engine": "0", "cache_dtype": "float32"}.items() <= cache.samples[0].labels.items()
    assert not families


def test_a_series_is_either_told_or_awaited() -> None:
    names = [series.name for series in SERIES]
    assert len(names) == len(set(names))
    assert set(names) == {*CONTRACT, "admission_rejections", "cache_config_info"}
    assert not [name for name in names for pattern in AWAITED if name == pattern or name.startswith(pattern.removesuffix("*") + "*")]
    assert set(BUCKETS) | {"request_tokens"} == set(BUCKET_FAMILIES) == {series.family for series in SERIES if series.family}
    assert one_two_five(256) == (1, 2, 5, 10, 20, 50, 100, 200)


def test_the_prefix_and_the_buckets_can_be_chosen() -> None:
    metrics = make(metrics_prefix="octavo:", histogram_buckets={"time_to_first_token": [0.5, 2.0], "request_tokens": [7.0]})
    metrics.record_first_tokens(1.0, 1)
    found = samples(metrics)
    assert all(name.startswith("octavo:") for name in found)
    assert [(s.labels["le"], s.value) for s in found["octavo:time_to_first_token_seconds_bucket"]] == [("0.5", 0), ("2.0", 1), ("+Inf", 1)]
    assert [s.labels["le"] for s in found["octavo:request_prompt_tokens_bucket"]] == ["7.0", "+Inf"]
    assert not any("kv_block" in name for name in found)


def test_what_is_written_is_what_prometheus_client_would_write() -> None:
    """The same values through their instruments and through ours give the same text, times of creation aside."""
    registry = CollectorRegistry()
    theirs = TheirHistogram("vllm:wait_seconds", "Waiting.", ("engine",), buckets=(0.5, 1, 2), registry=registry).labels("0")
    counted = TheirCounter("vllm:things", "Things.", ("engine", "kind"), registry=registry)
    own = Family("vllm:wait_seconds", "Waiting.", ("engine",), lambda: Histogram((0.5, 1, 2)))
    things = Family("vllm:things", "Things.", ("engine", "kind"), Counter)
    for value in (0.5, 0.500001, 0.0, 3.5, 1.0, 2.0):
        theirs.observe(value)
        own.of("0").observe(value)
    for kind, amount in (("a", 2), ('b\n"x', 0.5)):
        counted.labels("0", kind).inc(amount)
        things.of("0", kind).inc(amount)

    class Both:
        def collect(self) -> list[Any]:
            return [*own.collect(), *things.collect()]

    def lines(text: bytes) -> list[str]:
        return [line for line in text.decode().splitlines() if "_created{" not in line]

    assert lines(generate_latest(Both())) == lines(generate_latest(registry))  # type: ignore[arg-type]
    assert lines(generate_openmetrics(Both())) == lines(generate_openmetrics(registry))  # type: ignore[arg-type,no-untyped-call]


def test_the_core_s_figures_are_told() -> None:
    metrics = make(cache_sample=1.0)
    metrics.record_engine(
        EngineStats(
            num_running=3,
            num_waiting=2,
            kv_cache_usage=0.5,
            num_preemptions=1,
            prompt_tokens=10,
            cached_prompt_tokens=32,
            num_corrupted=1,
            step_tokens=[7, 8],
            block_lifetimes_s=[1.5],
            block_idles_s=[0.5],
            block_gaps_s=[0.1, 0.2],
        )
    )
    metrics.record_deferred(4)
    found = {name: sum(s.value for s in each) for name, each in samples(metrics).items()}
    expected = {
        "num_requests_running": 3,
        "num_requests_waiting": 6,
        "num_requests_waiting_by_reason": 6,
        "prompt_tokens_total": 42,
        "prompt_tokens_by_source_total": 42,
        "prompt_tokens_cached_total": 32,
        "prompt_tokens_cached_by_source_total": 32,
        "corrupted_requests_total": 1,
        "iteration_tokens_total_sum": 15,
        "kv_block_lifetime_seconds_sum": 1.5,
        "kv_block_reuse_gap_seconds_count": 2,
    }
    assert {name: found[f"vllm:{name}"] for name in expected} == expected
    metrics.record_deferred(-4)
    metrics.record_engine_death()
    found = {name: sum(s.value for s in each) for name, each in samples(metrics).items()}
    assert not any(found[f"vllm:{name}"] for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"))


async def test_every_end_is_counted_once(tokenizer: Tokenizer) -> None:
    """Stopped by the model and by a string, cut, failed, refused by the core, aborted before and after a token, n = 3 among them."""
    async with running(tokenizer, "abcdef", max_num_seqs=2, block_size=4) as (llm, client):
        engine: ScriptedEngine = client.engine

        async def run(name: str, prompt: str = "x", **params: Any) -> list[int]:
            outputs = [o async for o in llm.generate(prompt, SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **params), name)]
            return [len(each.token_ids) for each in outputs[-1].outputs]

        told = [*await run("stopped"), *await run("cut", max_tokens=2), *await run("string", stop=["cd"])]
        told += await run("three", prompt="x" * 40, n=3, max_tokens=4)
        engine.fails["failing"] = "the logits are no numbers"
        with pytest.raises(GenerationError):
            await run("failing")
        engine.refusal = "too long for the cache"
        with pytest.raises(RequestError):
            await run("refused")
        engine.refusal = None
        client.allow(1)
        stream = await llm.add_request("left", "x", SamplingParams(output_kind=RequestOutputKind.DELTA))
        first = await anext(stream)
        told.append(len(first.outputs[0].token_ids))
        assert (await _values(llm))["vllm:num_requests_waiting"] == 0
        await stream.aclose()
        client.gate.clear()
        waiting = await llm.add_request("never begun", "x" * 40, SamplingParams(n=2))
        assert (await _values(llm))["vllm:num_requests_waiting_by_reason"] == 1  # the second one waits for the first
        await llm.abort("never begun")
        await waiting.aclose()
        found = await _values(llm)
    ends = {"stop": 2, "length": 1 + 3, "error": 2, "abort": 1 + 2, "repetition": 0}
    assert {r: found["vllm:request_success_total", r] for r in ends} == ends
    num = sum(ends.values())
    for name in ("e2e_request_latency_seconds", "request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens"):
        assert found[f"vllm:{name}_count"] == num, name
    assert (found["vllm:request_params_n_count"], found["vllm:request_params_n_sum"]) == (8, num)
    assert found["vllm:generation_tokens_total"] == sum(told) == found["vllm:request_generation_tokens_sum"]
    assert found["vllm:inter_token_latency_seconds_count"] == sum(told) - found["vllm:time_to_first_token_seconds_count"]
    assert found["vllm:num_requests_waiting"] == 0


async def test_tokens_that_come_together_share_the_time_between(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "abcdefgh", per_step=3) as (llm, _):
        async for _output in llm.generate("x", SamplingParams(max_tokens=8), "r"):
            pass
        found = await _values(llm)
    assert found["vllm:generation_tokens_total"] == 8
    assert found["vllm:inter_token_latency_seconds_count"] == 7
    assert found["vllm:inter_token_latency_seconds_sum"] == pytest.approx(found["vllm:request_decode_time_seconds_sum"])


async def test_tokens_behind_a_stop_string_are_not_counted(tokenizer: Tokenizer) -> None:
    async with running(tokenizer, "abcdefgh", per_step=4) as (llm, _):
        params = SamplingParams(stop=["b"], output_kind=RequestOutputKind.FINAL_ONLY)
        (output,) = [o async for o in llm.generate("x", params, "r")]
        found = await _values(llm)
    assert output.outputs[0].token_ids == tokenizer.encode("ab", add_special_tokens=False)
    assert found["vllm:generation_tokens_total"] == 2 == found["vllm:request_generation_tokens_sum"]
    assert found["vllm:inter_token_latency_seconds_count"] == 1


async def _values(llm: Any) -> dict[Any, float]:
    found: dict[Any, float] = {}
    for name, each in samples(llm.metrics).items():
        found[name] = sum(s.value for s in each)
        found |= {(name, s.labels["finished_reason"]): s.value for s in each if "finished_reason" in s.labels}
    return found
