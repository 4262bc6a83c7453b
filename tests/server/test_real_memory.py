"""Memory that does not suffice: each error is provoked as an operator would, and what its hint says is then done and works."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import MemoryPlanError
from tests.server.real_server import TEXTS, RealServer, write_model

MIB = 1024**2
FAST = ("--dtype", "float32", "--max-num-seqs", "4", "--max-num-batched-tokens", "64", "--max-model-len", "1024", "--cpu-threads", "1")
# weights of 3 GiB; reading a file that size would not be slower than making them
LARGE = ("--load-format", "dummy", "--hf-overrides", '{"hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 4}')
LIMITED = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]),) * 2); os.execv(sys.argv[2], sys.argv[2:])"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("script"))


@pytest.fixture
def servers(model: Path) -> Iterator[Any]:
    """A function that starts a server; all are ended afterwards."""
    started: list[RealServer] = []

    def start(*words: str, **arguments: Any) -> RealServer:
        started.append(RealServer(model, *FAST, *words, **arguments))
        return started[-1]

    yield start
    for server in started:
        server.close()


def refusal(server: RealServer) -> str:
    """What a server that does not start says last."""
    assert server.wait_end() == 1, server.log
    assert "Traceback" not in server.log
    assert server.left_over() == []
    fact, hint = server.lines[-2:]
    assert fact.startswith("octavo serve: "), server.log
    assert hint.startswith("hint: "), server.log
    return fact + hint


def answers(server: RealServer) -> bool:
    server.wait_ready()
    return bool(server.post("/v1/completions", prompt="say p").json()["choices"][0]["text"] == TEXTS["p"])


def share(size_bytes: float) -> str:
    """A size as a share of the machine, for --gpu-memory-utilization."""
    return f"{size_bytes / psutil.virtual_memory().total:.4f}"


def test_a_share_that_leaves_no_cache(servers: Any) -> None:
    said = refusal(servers("--gpu-memory-utilization", share(64 * MIB)))
    assert "No available memory for the cache" in said
    raised = re.search(r"raise --gpu-memory-utilization to at least (0\.\d+)", said)
    assert raised is not None, said
    assert answers(servers("--gpu-memory-utilization", raised[1]))


def test_a_second_instance_is_told_before_anything_slow(servers: Any) -> None:
    free = psutil.virtual_memory().available
    first = servers("--gpu-memory-utilization", share(0.6 * free))
    assert answers(first)
    second = servers("--gpu-memory-utilization", share(0.6 * free), shared=first.folder)
    assert second.wait_end() == 1
    assert "on startup is less than desired GPU memory utilization" in second.log
    assert "promised to other octavo instances" in second.log
    assert "Device:" not in second.log  # which is told when the model has been loaded
    fits = re.search(r"lower --gpu-memory-utilization \(at most (0\.\d+) fits now\)", second.log)
    assert fits is not None, second.log
    assert 0 < float(fits[1]) < float(share(0.6 * free))
    assert answers(servers("--gpu-memory-utilization", f"{float(fits[1]) * 0.8:.3f}", shared=first.folder))
    assert answers(first)


def test_memory_that_runs_out_while_the_model_is_loaded(servers: Any) -> None:
    limit = (sys.executable, "-c", LIMITED, str(1024 * MIB))
    cache = ("--kv-cache-memory-bytes", "4M")
    with ThreadPoolExecutor(2) as pool:
        large, small = servers(*cache, *LARGE, wrapper=limit), servers(*cache, wrapper=limit)
        fits = pool.submit(answers, small)
        said = pool.submit(refusal, large).result()
        assert fits.result()  # the smaller model that the hint asks for
    assert re.search(r"of weights do not fit|out of memory while loading", said), said
    assert "a smaller model" in said


def test_a_worker_that_the_system_kills_while_it_loads(servers: Any) -> None:
    server = servers("--kv-cache-memory-bytes", "4M", *LARGE)
    os.kill(server.child("worker.process").pid, signal.SIGKILL)
    assert server.wait_end() == 1
    assert "was killed by SIGKILL while it was loading, which is what the system does when memory runs out" in server.log
    assert "hint: lower --gpu-memory-utilization or --max-num-batched-tokens, choose a smaller model, or stop other processes" in server.log
    assert "Traceback" not in server.log


def test_a_server_that_is_stopped_while_it_loads_leaves_nothing(servers: Any) -> None:
    server = servers("--kv-cache-memory-bytes", "4M", *LARGE)
    server.children = [server.child("engine.process"), server.child("worker.process")]
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_end() == 130
    assert server.left_over() == []
    assert "Traceback" not in server.log


# --- lengths, through LLM in this process


@pytest.fixture
def load(model: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")

    def load(**options: Any) -> LLM:
        return LLM(str(model), dtype="float32", max_num_seqs=4, max_num_batched_tokens=64, cpu_threads=1, **options)

    return load


def says(llm: LLM, length: int) -> str:
    """The answer of a request that fills the context, and the end of the LLM."""
    with llm:
        assert llm.facts.max_model_len == length
        (output,) = llm.generate("say o", SamplingParams(temperature=0, max_tokens=None), use_tqdm=False)
        assert len(output.outputs[0].token_ids) == length - len("say o")
        return llm.generate("say p", SamplingParams(temperature=0), use_tqdm=False)[0].outputs[0].text


def test_a_context_that_does_not_fit(load: Any) -> None:
    with pytest.raises(MemoryPlanError, match="one request of max_model_len 16384 needs") as caught:
        load(kv_cache_memory_bytes=MIB // 4)
    longest = re.search(r"the estimated maximum model length is (\d+)", caught.value.fact)
    assert longest is not None
    hint = caught.value.hint or ""
    assert f"lower --max-model-len to {longest[1]} (or pass auto)" in hint
    enough = re.search(r"raise --kv-cache-memory-bytes to at least (\d+)", hint)
    assert enough is not None
    assert says(load(kv_cache_memory_bytes=int(enough[1])), 16384) == TEXTS["p"]
    length = int(longest[1])
    assert says(load(kv_cache_memory_bytes=MIB // 4, max_model_len=length), length) == TEXTS["p"]
    assert says(load(kv_cache_memory_bytes=MIB // 4, max_model_len=-1), length) == TEXTS["p"]
    with pytest.raises(MemoryPlanError):
        load(kv_cache_memory_bytes=MIB // 4, max_model_len=length + 1)


def test_a_larger_cache_is_the_other_remedy(load: Any) -> None:
    with pytest.raises(MemoryPlanError, match="max_model_len 3000") as caught:
        load(kv_cache_memory_bytes=MIB // 2, max_model_len=3000)
    enough = re.search(r"raise --kv-cache-memory-bytes to at least (\d+)", caught.value.hint or "")
    assert enough is not None
    assert says(load(kv_cache_memory_bytes=int(enough[1]), max_model_len=3000), 3000) == TEXTS["p"]
    with pytest.raises(MemoryPlanError):
        load(kv_cache_memory_bytes=int(enough[1]) - 1, max_model_len=3000)


def test_a_cache_that_is_larger_than_what_is_free(load: Any) -> None:
    with pytest.raises(MemoryPlanError, match="--kv-cache-memory-bytes") as caught:
        load(kv_cache_memory_bytes=1 << 50)
    fits = re.search(r"lower --kv-cache-memory-bytes to at most (\d+)", caught.value.hint or "")
    assert fits is not None
    assert says(load(kv_cache_memory_bytes=int(fits[1]) // 2, max_model_len=2000), 2000) == TEXTS["p"]


def test_the_largest_context_is_found_on_the_command_line(servers: Any) -> None:
    server = servers("--kv-cache-memory-bytes", "256K", "--max-model-len", "auto")
    assert answers(server)
    length = re.search(r"reduced from 16384 to (\d+) to fit in available KV cache memory", server.log)
    assert length is not None, server.log
    assert f"context      {int(length[1]):,} tokens" in server.log
