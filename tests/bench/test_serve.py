"""octavo bench serve, as typed: against a real server of the script model, and against a stub; tables, files, plots, exit codes."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from octavo.bench import plots, serve
from octavo.bench.figures import METRICS
from octavo.bench.load import Outcome
from octavo.cli import main as cli
from octavo.text.tokenizer import Tokenizer
from tests.bench.stub_server import StubServer
from tests.server.real_server import ROOT, RealServer

PNG = b"\x89PNG\r\n\x1a\n"
RANDOM = ("--dataset-name", "random", "--random-input", "24", "--random-output", "6", "--num-prompts", "8", "--ignore-eos")

RESULT_KEYS = """date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration
completed failed total_input_tokens total_output_tokens request_throughput request_goodput output_throughput
total_token_throughput input_lens output_lens ttfts itls latencies start_times queue_times generated_texts errors
max_output_tokens_per_s max_concurrent_requests probe_completed probe_failed"""


def bench(server: RealServer, folder: Path, *words: str) -> int:
    return cli.main(["bench", "serve", "--base-url", server.url, "--tokenizer", str(folder), "--disable-tqdm", *words])


def on_stub(stub: StubServer, tmp_path: Path, prompts: list[str], *words: str) -> int:
    """Custom prompts, in their order, without a tokenizer."""
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
    dataset = ("--dataset-name", "custom", "--dataset-path", str(file), "--custom-output-len", "4", "--disable-shuffle")
    size = ("--num-prompts", str(len(prompts)), "--skip-tokenizer-init", "--disable-tqdm")
    return cli.main(["bench", "serve", "--port", str(stub.port), *dataset, *size, *words])


def rows(text: str) -> dict[str, str]:
    """The lines of a table."""
    return {found[1].strip(): found[2] for line in text.splitlines() if (found := re.match(r"(.{40}) (\S+) *$", line))}


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_a_real_server(
    served: RealServer, script_folder: Path, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    before = served.metric("generation_tokens_total")
    words = ("--backend", backend, "--percentile-metrics", ",".join(METRICS), "--metric-percentiles", "50,99", "--max-concurrency", "3")
    saved = ("--save-result", "--save-detailed", "--result-dir", str(tmp_path / "new"), "--result-filename", "r.json", "--metadata", "a=b")
    assert bench(served, script_folder, *RANDOM, *words, *saved, "--plot-timeline", "--plot-dataset-stats", "--goodput", "e2el:60000") == 0
    told = capsys.readouterr()
    shown = rows(told.out)
    assert shown["Successful requests:"] == "8"
    assert shown["Failed requests:"] == "0"
    assert shown["Maximum request concurrency:"] == "3"
    assert shown["Total generated tokens:"] == "48"
    assert 1 <= float(shown["Peak concurrent requests:"]) <= 3
    assert float(shown["P99 E2EL (ms):"]) >= float(shown["Median E2EL (ms):"]) > float(shown["Median TTFT (ms):"]) > 0
    assert served.metric("generation_tokens_total") - before == 48
    assert float(shown["Tokens generated (tok/s):"]) > 0
    result = json.loads((tmp_path / "new" / "r.json").read_text())
    assert result["model_id"] == "scripted"
    assert result["backend"] == backend
    assert result["a"] == "b"
    assert result["output_lens"] == [6] * 8
    # the template of the script model adds "[user]" and the last letter again
    assert result["input_lens"] == [24 + (7 if backend == "openai-chat" else 0)] * 8
    assert result["total_input_tokens"] == sum(result["input_lens"])
    assert all(len(gaps) <= 5 for gaps in result["itls"])  # a token that tears a character comes with the next
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])
    assert result["mean_ttft_ms"] == pytest.approx(1000 * sum(result["ttfts"]) / 8)
    assert result["engine"]["generation_tokens"] == 48
    for picture in ("r.timeline.png", "r.dataset_stats.png"):
        assert (tmp_path / "new" / picture).read_bytes().startswith(PNG)


def test_vllm_s_keys(served: RealServer, script_folder: Path, tmp_path: Path) -> None:
    """Those that its bench of the same kind of run was seen to write."""
    words = ("--max-concurrency", "4", "--probe-request-rate", "50", "--num-warmups", "2", "--percentile-metrics", "ttft,tpot,itl,e2el")
    assert bench(served, script_folder, *RANDOM, *words, "--save-result", "--save-detailed", "--result-dir", str(tmp_path)) == 0
    (file,) = tmp_path.iterdir()
    assert re.fullmatch(r"openai-infqps-concurrency4-scripted-\d{8}-\d{6}\.json", file.name)
    result = json.loads(file.read_text())
    known = {f"{kind}_{name}_ms" for kind in ("mean", "median", "std", "p99") for name in ("ttft", "tpot", "itl", "e2el")}
    known |= set(RESULT_KEYS.split())
    assert known - set(result) == set()
    assert result["request_rate"] == "inf"
    assert result["errors"] == [""] * 8


def test_results_are_brief_and_can_be_added_to(served: RealServer, script_folder: Path, tmp_path: Path) -> None:
    words = (*RANDOM, "--save-result", "--result-dir", str(tmp_path), "--result-filename", "r.json")
    assert bench(served, script_folder, *words, "--label", "one") == 0
    assert bench(served, script_folder, *words, "--label", "two", "--append-result") == 0
    results = [json.loads(line) for line in (tmp_path / "r.json").read_text().splitlines()]
    assert [r["label"] for r in results] == ["one", "two"]
    assert "ttfts" not in results[0]
    assert bench(served, script_folder, *words, "--label", "three") == 0
    assert json.loads((tmp_path / "r.json").read_text())["label"] == "three"


def test_rates_ramps_and_traces(served: RealServer, script_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = ("--save-result", "--save-detailed", "--result-dir", str(tmp_path), "--result-filename", "r.json")
    assert bench(served, script_folder, *RANDOM, "--request-rate", "100", *saved) == 0
    assert "Request rate configured (RPS):           100.00    " in capsys.readouterr().out
    ramp = ("--ramp-up-strategy", "linear", "--ramp-up-start-rps", "50", "--ramp-up-end-rps", "52")
    assert bench(served, script_folder, *RANDOM, *ramp, *saved) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert [e["rps"] for e in result["rps_change_events"]] == [50, 51, 52]
    assert result["ramp_up_strategy"] == "linear"
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": t, "input_length": 10, "output_length": 3, "hash_ids": [1]} for t in (50, 150, 350)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    timed = ("--dataset-name", "timed_trace", "--dataset-path", str(trace), "--timed-trace-sec-multiplier", "0.001", "--ignore-eos")
    assert bench(served, script_folder, *timed, *saved) == 0
    starts = json.loads((tmp_path / "r.json").read_text())["start_times"]
    assert starts[1] - starts[0] >= 0.09
    assert starts[2] - starts[1] >= 0.19


def test_prefixes_hit_the_cache(served: RealServer, script_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--prefix-repetition-prefix-len", "200", "--prefix-repetition-suffix-len", "8", "--prefix-repetition-num-prefixes", "1")
    more = ("--prefix-repetition-output-len", "2", "--num-prompts", "6", "--max-concurrency", "1", "--ignore-eos", "--seed", "77")
    assert bench(served, script_folder, "--dataset-name", "prefix_repetition", *words, *more) == 0
    assert float(rows(capsys.readouterr().out)["Prefix cache hit rate (%):"]) > 50


def test_logprobs_and_beams_are_asked_for(served: RealServer, script_folder: Path) -> None:
    assert bench(served, script_folder, *RANDOM, "--logprobs", "2", "--temperature", "0", "--extra-body", '{"seed": 3}') == 0
    assert bench(served, script_folder, *RANDOM, "--backend", "openai-chat", "--logprobs", "2", "--top-k", "3") == 0


def test_failures_are_counted_and_told(stub: StubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert on_stub(stub, tmp_path, ["plain", "error", "broken", "error", "plain", "faulty"], "--max-concurrency", "2") == 0
    told = capsys.readouterr()
    shown = rows(told.out)
    assert (shown["Successful requests:"], shown["Failed requests:"]) == ("2", "4")
    assert (shown["Total input tokens:"], shown["Total generated tokens:"]) == ("14", "8")
    assert "2 failed: HTTP 500: out of luck\n" in told.err
    assert "1 failed: the connection broke off in the middle of the answer\n" in told.err
    assert "1 failed: error in the stream: row fell over\n" in told.err
    assert shown["Acceptance rate (%):"] == "50.00"
    assert shown["  Position 0:".strip()] == "100.00"


def test_if_all_fail_the_exit_code_says_so(stub: StubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert on_stub(stub, tmp_path, ["error", "overload"]) == 1
    assert rows(capsys.readouterr().out)["Failed requests:"] == "2"


def test_reasons_are_not_endless() -> None:
    lines = serve.reasons([Outcome(1, error=f"e{i}") for i in range(8)] + [Outcome(1, error="e0"), Outcome(1)])
    assert lines[0] == "2 failed: e0"
    assert len(lines) == 6
    assert "3 more reasons" in lines[-1]


def test_ids_headers_and_the_key(stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    words = ("--request-id-prefix", "mine-", "--header", "X-A=1", "X-B=2=3", "--served-model-name", "other", "--model", "m")
    assert on_stub(stub, tmp_path, ["plain"], *words) == 0
    (head,) = stub.heads
    for line in (b"X-Request-Id: mine-0", b"X-A: 1", b"X-B: 2=3", b"Authorization: Bearer sesame"):
        assert b"\r\n" + line + b"\r\n" in head
    assert stub.bodies[0]["model"] == "other"


def test_an_interrupt_ends_it(stub: StubServer, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "stall"}\n')
    words = ["bench", "serve", "--port", str(stub.port), "--dataset-name", "custom", "--dataset-path", str(tmp_path / "p.jsonl")]
    command = [sys.executable, "-m", "octavo.cli.main", *words, "--num-prompts", "2", "--skip-tokenizer-init"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert stub.is_asked(2, 60)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130, out
    assert "Traceback" not in out


def test_the_ready_check_waits(stub: StubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert on_stub(stub, tmp_path, ["plain one", "plain two"], "--ready-check-timeout-sec", "5", "--num-warmups", "2") == 0
    assert [body["prompt"] for body in stub.bodies] == [*["plain one"] * 4, "plain two"]
    assert [re.search(rb"X-Request-Id: (\w+)-", head)[1] for head in stub.heads] == [b"ready", b"warmup", b"warmup", b"bench", b"bench"]  # type: ignore[index]
    assert on_stub(stub, tmp_path, ["error"], "--ready-check-timeout-sec", "0.1") == 1
    assert "not ready within 0.1 s: HTTP 500" in capsys.readouterr().err
    assert on_stub(stub, tmp_path, ["error"], "--num-warmups", "1") == 1
    assert "no warm-up request succeeded" in capsys.readouterr().err


def test_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "serve", "--port", "1"]) == 1
    err = capsys.readouterr().err
    assert "no server answers at http://127.0.0.1:1" in err
    assert "hint: start one" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--endpoint", "/v1/chat/completions"], "--backend openai needs an --endpoint"),
        (["--goodput", "itl:3"], "--goodput"),
        (["--percentile-metrics", "x"], "unknown metric"),
        (["--header", "x"], "NAME=VALUE"),
        (["--metadata", "x"], "KEY=VALUE"),
        (["--timeline-itl-thresholds", "50,25"], "pair of milliseconds"),
        (["--base-url", "ftp://x"], "is not an address"),
        (["--burstiness", "0"], "--burstiness"),
    ],
)
def test_what_is_wrong_is_said_before_a_server_is_asked(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "serve", "--port", "1", *words]) in (1, 2)
    assert said in capsys.readouterr().err


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["bench", "serve", "--port", "1", "--plot-timeline"]) in (1, 2)
    assert "octavo[bench]" in capsys.readouterr().err


def test_a_timeline_of_failures_can_be_drawn(tmp_path: Path) -> None:
    from octavo.bench.load import Run

    plots.timeline(tmp_path / "t.png", Run([Outcome(1, start_s=1.0, latency_s=0.2, error="x")], 0.0, 2.0, []), (25, 50))
    assert (tmp_path / "t.png").read_bytes().startswith(PNG)


def test_the_server_is_as_it_was(served: RealServer) -> None:
    """Nothing runs, no block is held, nothing in its log is a fault."""
    served.wait_idle()
    assert httpx.get(served.url + "/health").status_code == 200
    assert served.faults == ""
