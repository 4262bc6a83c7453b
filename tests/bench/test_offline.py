"""octavo bench throughput, latency and startup, over the script model; the first two with the engine in this process."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.cli import main as cli

SMALL = ("--dtype", "float32", "--max-num-seqs", "4", "--max-num-batched-tokens", "64", "--kv-cache-memory-bytes", "24M")


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine's threads, and its log's set-up, end with the test."""
    monkeypatch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")
    log = logging.getLogger("octavo")
    before = (log.handlers[:], log.level, log.propagate)
    yield
    log.handlers[:], log.level, log.propagate = before


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", [[], ["--async-engine"], ["--backend", "vllm-chat"]])
def test_throughput(script_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: list[str]) -> None:
    file = tmp_path / "t.json"
    size = ("--input-len", "20", "--output-len", "5", "--num-prompts", "6", "--n", "2", "--num-warmups", "1", "--output-json", str(file))
    assert cli.main(["bench", "throughput", "--model", str(script_folder), *SMALL, *size, *kind]) == 0
    out = capsys.readouterr().out
    num_prompt = 6 * (20 + (7 if "vllm-chat" in kind else 0))
    found = re.match(r"Throughput: ([\d.]+) requests/s, ([\d.]+) total tokens/s, ([\d.]+) output tokens/s\n", out)
    assert found is not None
    assert f"Total num prompt tokens:  {num_prompt}\nTotal num output tokens:  60\n" in out
    assert "Prefix cache hit rate (%):" in out
    assert "Weights read (GB/s):" in out
    result = json.loads(file.read_text())
    assert result["num_requests"] == 6
    assert result["total_num_tokens"] == num_prompt + 60
    assert result["tokens_per_second"] == pytest.approx(result["total_num_tokens"] / result["elapsed_time"])
    assert float(found[1]) == pytest.approx(result["requests_per_second"], abs=0.01)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", [[], ["--use-beam-search"]])
def test_latency(script_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: list[str]) -> None:
    file = tmp_path / "l.json"
    size = ("--input-len", "72", "--output-len", "4", "--batch-size", "2", "--n", "2", "--num-iters", "3", "--num-iters-warmup", "1")
    assert cli.main(["bench", "latency", "--model", str(script_folder), *SMALL, *size, "--output-json", str(file), *kind]) == 0
    out = capsys.readouterr().out
    result = json.loads(file.read_text())
    assert len(result["latencies"]) == 3
    assert list(result["percentiles"]) == ["10", "25", "50", "75", "90", "99"]
    assert out.startswith(f"Avg latency: {sum(result['latencies']) / 3}"[:22])
    assert f"99% percentile latency: {result['percentiles']['99']} seconds\n" in out
    assert re.search(r"Prefix cache hit rate \(%\): +0.00", out)  # a repeated prompt would measure nothing


def test_startup(script_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.json"
    count = ("--num-iters-cold", "0", "--num-iters-warmup", "0", "--num-iters-warm", "1", "--output-json", str(file))
    assert cli.main(["bench", "startup", "--model", str(script_folder), *SMALL, *count]) == 0
    (seconds,) = json.loads(file.read_text())["warm_startup_times"]
    told = capsys.readouterr()
    assert f"Avg total startup time: {seconds:.2f} seconds" in told.out
    assert "Cold" not in told.out
    assert "warm start 1 of 1" in told.err


def test_an_engine_that_does_not_start(script_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = ("--num-iters-cold", "0", "--num-iters-warmup", "0", "--num-iters-warm", "1")
    assert cli.main(["bench", "startup", "--model", str(script_folder), *count, "--max-model-len", "1g"]) == 1
    assert "the engine did not start" in capsys.readouterr().err


@pytest.mark.slow
def test_cold_starts_compile(script_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    count = ("--num-iters-cold", "1", "--num-iters-warmup", "1", "--num-iters-warm", "1", "--output-json", str(file))
    assert cli.main(["bench", "startup", "--model", str(script_folder), *SMALL, *count]) == 0
    result = json.loads(file.read_text())
    assert result["avg_cold_startup_time"] > result["avg_warm_startup_time"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["throughput"], "there is no dataset"),
        (["throughput", "--input-len", "4", "--backend", "vllm-chat", "--async-engine"], "does not go with"),
        (["latency", "--num-iters", "0"], "at least 1"),
        (["startup", "--num-iters-cold", "0", "--num-iters-warm", "0"], "nothing is measured"),
        (["latency", "--model", "/nowhere"], "does not exist"),
    ],
)
def test_what_is_wrong(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *words]) in (1, 2)
    assert said in capsys.readouterr().err
