"""The memory of the log is the memory of the process: runtime + weights + arena + cache, when every block has been touched."""

import resource
from pathlib import Path
from typing import Any

import msgspec
import pytest

from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.engine.client import EngineClient
from octavo.errors import MemoryPlanError
from tests.engine.tiny import LLAMA, generate, prompt, request, tiny_config

MIB = 1024**2
PARTS = ("runtime_bytes", "weights_bytes", "arena_bytes", "cache_bytes")


def in_a_process(config: Any) -> Any:
    parallel = msgspec.structs.replace(config.parallel, executor="processes", core_in_process=True)
    return msgspec.structs.replace(config, parallel=parallel)


def report_after_touching(client: EngineClient) -> dict[str, int]:
    client.call("worker", "touch_cache")
    report: dict[str, int] = client.call("worker", "memory_report")
    return report


@pytest.mark.model
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_plan_equals_what_the_process_holds(smollm2: Path, dtype: str) -> None:
    options = Options(model=str(smollm2), dtype=dtype, max_model_len=2048, kv_cache_memory_bytes=700 * MIB, skip_tokenizer_init=True)
    client = EngineClient()
    facts = client.start(in_a_process(resolve(options)))
    try:
        report = report_after_touching(client)
        tokens = [1000 + i for i in range(300)]
        generate(client, [request(str(i), tokens[i : i + 250], max_tokens=4, logprobs=2) for i in range(4)])
        after = client.call("worker", "memory_report")
    finally:
        client.shutdown()
    planned = sum(report[part] for part in PARTS)
    assert report["used_bytes"] == pytest.approx(planned, rel=0.05)
    assert after["used_bytes"] == pytest.approx(planned, rel=0.05)
    told = (facts.runtime_bytes, facts.weights_bytes, facts.arena_bytes, facts.cache_bytes)
    assert told == (report["kept_runtime_bytes"], *(report[part] for part in PARTS[1:]))
    assert report["kept_runtime_bytes"] >= report["runtime_bytes"]


def test_a_cache_is_not_resident_until_it_is_used() -> None:
    client = EngineClient()
    client.start(in_a_process(tiny_config(memory_bytes=256 * MIB)))
    try:
        generate(client, [request("one", prompt(1, 40))])
        before = client.call("worker", "memory_report")
        after = report_after_touching(client)
    finally:
        client.shutdown()
    assert before["used_bytes"] < before["runtime_bytes"] + before["weights_bytes"] + before["arena_bytes"] + 64 * MIB
    assert after["used_bytes"] - before["used_bytes"] > 180 * MIB
    assert after["used_bytes"] == pytest.approx(sum(after[part] for part in PARTS), abs=40 * MIB)


def test_a_budget_that_the_weights_fill_is_refused_before_they_are_read(tmp_path: Path) -> None:
    """The folder holds no weights: reading them would be another error."""
    config = tiny_config(memory_bytes=None, memory_utilization=1e-4, load_format="safetensors", path=str(tmp_path))
    client = EngineClient()
    with pytest.raises(MemoryPlanError, match="No available memory for the cache: weights") as caught:
        client.start(config)
    assert "raise --gpu-memory-utilization" in str(caught.value)


def test_memory_that_runs_out_while_loading_is_told_as_that() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    client = EngineClient()
    large = {**LLAMA, "vocab_size": 200_000, "hidden_size": 1024, "num_attention_heads": 16}
    config = tiny_config(hf_config=large, vocab_size=200_000)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + 600 * MIB, hard))
    try:
        with pytest.raises(MemoryPlanError, match=r"out of memory while loading the model|do not fit") as caught:
            client.start(config)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    assert caught.value.hint


def _data_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmData")
