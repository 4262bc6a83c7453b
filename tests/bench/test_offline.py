"""octavo bench throughput, latency and startup, over the script model; the first two with the engine in this process."""

import json
import re
from pathlib import Path

import pytest

from octavo.bench import llama_cpp, quality
from octavo.cli import main as cli
from octavo.config.options import Options
from octavo.errors import ConfigError

SMALL = ("--dtype", "float32", "--max-num-seqs", "4", "--max-num-batched-tokens", "64", "--kv-cache-memory-bytes", "24M")


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's threads end with the test."""
    monkeypatch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")


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


@pytest.mark.usefixtures("in_process")
def test_quality(script_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script model is sure of its own script: a text that is not it has the perplexity that its logits say, twice the same."""
    text, file = tmp_path / "text.txt", tmp_path / "q.json"
    text.write_text("to be or not to be, that is the question " * 20)
    size = ("--text", str(text), "--tokens", "60", "--window", "24", "--output-len", "3", "--output-json", str(file))
    assert cli.main(["bench", "quality", str(script_folder), str(script_folder), *SMALL, *size]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = ["model", "tokens", "size MB", "memory MB", "TTFT ms", "TPOT ms", "perplexity", "to the first", "bits/byte"]
    assert re.split(r"  +", lines[0]) == titles
    assert lines[1].split()[-3:-1] == ["+0.00", "%"]
    assert len({line.split()[6] for line in lines[1:]}) == 1
    first, second = json.loads(file.read_text())["models"]
    assert first["num_tokens"] == 60 - 3
    assert first["perplexity"] == second["perplexity"] > 1
    assert first["tpot_s"] < 10
    assert first["memory_bytes"] > 0


@pytest.mark.usefixtures("in_process")
def test_quality_goes_on_where_it_stopped(
    script_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the same tokens and windows are taken from the file; what other rows it has stays there."""
    text, file = tmp_path / "text.txt", tmp_path / "q.json"
    text.write_text("to be or not to be, that is the question " * 20)
    model = str(script_folder)
    words = ["bench", "quality", *SMALL, "--text", str(text), "--window", "24", "--output-len", "3", "--output-json", str(file), "--resume"]
    assert cli.main([*words, model, "--tokens", "60"]) == 0
    assert cli.main([*words, model, "--tokens", "48"]) == 0
    measured: list[str] = []

    def measure(name: str, *_: object) -> quality.Row:
        measured.append(name)
        return quality.Row(name, 1, 1, 1.0, 1.0, 2.0, 1.0, 57, 60, 24)

    monkeypatch.setattr(quality, "measure", measure)
    capsys.readouterr()
    assert cli.main([*words, model, f"{model}=kv:float32", "--tokens", "60"]) == 0
    assert measured == [f"{model}=kv:float32"]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [model, measured[0]]
    assert [row["tokens"] for row in json.loads(file.read_text())["models"]] == [60, 48, 60]
    assert cli.main([*words, model, "--text", str(file), "--tokens", "60"]) == 1
    assert f"has figures of {text}" in capsys.readouterr().err


def test_what_may_stand_after_a_model() -> None:
    def read(word: str) -> tuple[str | None, str | None, str, bool]:
        options, is_llama_cpp = quality.variant(word, Options(model="none"))
        return options.model, options.quantization, options.kv_cache_dtype, is_llama_cpp

    assert read("m") == ("m", None, "auto", False)
    assert read("m=int8") == ("m", "int8", "auto", False)
    assert read("m=kv:fp8") == ("m", None, "fp8", False)
    assert read("m=int4,kv:fp8") == ("m", "int4", "fp8", False)
    assert read("m.gguf=llama.cpp") == ("m.gguf", None, "auto", True)
    for word in ("m=llama.cpp", "m.gguf=llama.cpp,kv:fp8", "m=int4,int8"):
        with pytest.raises(ConfigError):
            read(word)


def test_llama_cpp_is_the_peer_over_the_same_windows(smollm2_gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same file in both: perplexities differ by what rounding does."""
    try:
        llama_cpp.library()
    except ConfigError:
        pytest.skip("llama-cpp-python is not installed, or its library cannot be loaded here")
    text, file = tmp_path / "text.txt", tmp_path / "q.json"
    text.write_text("It was a bright cold day in April, and the clocks were striking thirteen. " * 20)
    size = ("--text", str(text), "--tokens", "128", "--window", "64", "--output-len", "2", "--output-json", str(file))
    words = ["bench", "quality", str(smollm2_gguf), f"{smollm2_gguf}=llama.cpp", *size]
    assert cli.main([*words, "--max-model-len", "512", "--kv-cache-memory-bytes", "64M"]) == 0
    ours, theirs = json.loads(file.read_text())["models"]
    assert ours["num_tokens"] == theirs["num_tokens"] == 126
    assert theirs["perplexity"] == pytest.approx(ours["perplexity"], rel=0.05)


@pytest.mark.usefixtures("in_process")
def test_quality_without_a_text(script_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "quality", str(script_folder), *SMALL]) == 1
    assert "needs --text FILE" in capsys.readouterr().err


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
