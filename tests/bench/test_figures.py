"""Figures against sums done by hand."""

import math

import numpy as np
import pytest

from octavo.bench import engine_side, figures
from octavo.bench.load import Outcome, Run
from octavo.bench.options import ServeOptions
from octavo.bench.table import engine_table, table
from octavo.errors import ConfigError
from octavo.frontend.metrics import Metric

# two answers and a failure: tokens at 0.5, 0.6, 0.8 and at 1.5, 1.7 s after the run's start
RUN = Run(
    outcomes=[
        Outcome(10, start_s=100.0, ttft_s=0.5, itl_s=[0.1, 0.2], latency_s=0.8, num_output=3),
        Outcome(20, start_s=100.5, queue_s=0.25, ttft_s=1.0, itl_s=[0.2], latency_s=1.2, num_output=2),
        Outcome(30, start_s=100.0, ttft_s=9.0, latency_s=9.0, error="HTTP 503: busy"),
    ],
    start_s=100.0,
    seconds=2.0,
    probes=[Outcome(1, latency_s=0.1), Outcome(1, latency_s=0.3), Outcome(1, error="x")],
)


def test_counts_and_rates() -> None:
    found = figures.result(figures.figures(RUN, [99]), [])
    assert found["completed"] == 2
    assert found["failed"] == 1
    assert found["total_input_tokens"] == 30
    assert found["total_output_tokens"] == 5
    assert found["request_throughput"] == 1.0
    assert found["output_throughput"] == 2.5
    assert found["total_token_throughput"] == 17.5
    assert found["max_output_tokens_per_s"] == 3.0  # 0.5, 0.6, 0.8 in the first second
    assert found["max_concurrent_requests"] == 2  # from 100.5 to 100.8
    assert found["request_goodput"] is None


def test_latencies() -> None:
    found = figures.result(figures.figures(RUN, [50, 99.9]), figures.METRICS)
    approx = pytest.approx
    assert (found["mean_ttft_ms"], found["median_ttft_ms"], found["std_ttft_ms"]) == (approx(750), approx(750), approx(250))
    assert found["p99.9_ttft_ms"] == approx(500 + 0.999 * 500)
    assert found["mean_tpot_ms"] == approx((0.3 / 2 + 0.2 / 1) / 2 * 1000)
    assert found["mean_itl_ms"] == approx((0.1 + 0.2 + 0.2) / 3 * 1000)
    assert found["p50_itl_ms"] == approx(200)
    assert found["mean_e2el_ms"] == approx(1000)
    assert found["mean_client_queue_time_ms"] == approx(125)
    assert found["mean_e2el_including_client_queue_ms"] == approx(1125)


@pytest.mark.parametrize(
    ("goals", "good"),
    [
        (["ttft:500"], 1),
        (["ttft:1000"], 2),
        (["ttft:1000", "e2el:900"], 1),
        (["tpot:149"], 0),
        (["tpot:151"], 1),
        (["ttft:499", "tpot:1000"], 0),
    ],
)
def test_goodput(goals: list[str], good: int) -> None:
    found = figures.figures(RUN, [99], figures.parse_goals(goals))
    assert found.num_good == good
    assert figures.result(found, [])["request_goodput"] == good / 2.0


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    assert figures.per_token_s(Outcome(1, ttft_s=1.0, latency_s=1.0, num_output=1)) is None
    assert figures.is_good(Outcome(1, ttft_s=0.1, latency_s=0.1, num_output=1), {"tpot": 5.0})


def test_tokens_that_share_a_chunk_are_counted_when_it_came() -> None:
    outcome = Outcome(1, start_s=0.0, ttft_s=0.5, itl_s=[1.0], latency_s=1.5, num_output=8)
    assert figures.output_by_second(Run([outcome], 0.0, 2.0, [])) == [4.0, 4.0]


def test_most_at_once_ends_before_it_begins() -> None:
    assert figures.most_at_once([(0, 1), (1, 2), (2, 3)]) == 1
    assert figures.most_at_once([(0, 3), (1, 2), (1.5, 4)]) == 3
    assert figures.most_at_once([]) == 0


def test_a_run_without_success_has_figures() -> None:
    failed = Run([Outcome(5, error="no")], 0.0, 1.0, [])
    found = figures.figures(failed, [99], {"ttft": 1.0})
    assert (found.num_completed, found.num_failed, found.num_good, found.peak_concurrency) == (0, 1, 0, 0)
    assert found.spreads["ttft"].mean == 0
    assert "Failed requests:                         1" in table(ServeOptions(), found, list(figures.METRICS))


def test_unknown_lengths_are_counted() -> None:
    run = Run([Outcome(1, itl_s=[1.0], text="a b c"), Outcome(1, num_output=9), Outcome(1, error="x")], 0.0, 1.0, [])
    figures.count_unknown_outputs(run, lambda text: len(text.split()))
    assert [o.num_output for o in run.outcomes] == [3, 9, None]
    run.outcomes[0].num_output = None
    figures.count_unknown_outputs(run, None)
    assert run.outcomes[0].num_output == 2


def test_table_is_line_for_line_that_of_vllm() -> None:
    options = ServeOptions(max_concurrency=4, request_rate=2.0)
    found = figures.figures(RUN, [50, 99], {"ttft": 600.0})
    done = engine_side.Counters(
        {"spec_decode_num_drafts": 10, "spec_decode_num_draft_tokens": 20, "spec_decode_num_accepted_tokens": 15}, {1: 5, 0: 10}
    )
    text = table(options, found, ["ttft", "client_queue_time"], RUN.probes, engine_side.Speculation.of(done))
    assert text.splitlines() == [
        "============ Serving Benchmark Result ============",
        "Successful requests:                     2         ",
        "Failed requests:                         1         ",
        "Maximum request concurrency:             4         ",
        "Request rate configured (RPS):           2.00      ",
        "Benchmark duration (s):                  2.00      ",
        "Total input tokens:                      30        ",
        "Total generated tokens:                  5         ",
        "Request throughput (req/s):              1.00      ",
        "Request goodput (req/s):                 0.50      ",
        "Output token throughput (tok/s):         2.50      ",
        "Peak output token throughput (tok/s):    3.00      ",
        "Peak concurrent requests:                2.00      ",
        "Total token throughput (tok/s):          17.50     ",
        "------------------Probe Requests------------------",
        "Probe requests completed:                2         ",
        "Probe requests failed:                   1         ",
        "Median probe E2EL (ms):                  200.00    ",
        "P99 probe E2EL (ms):                     298.00    ",
        "Max probe E2EL (ms):                     300.00    ",
        "---------------Time to First Token----------------",
        "Mean TTFT (ms):                          750.00    ",
        "Median TTFT (ms):                        750.00    ",
        "P50 TTFT (ms):                           750.00    ",
        "P99 TTFT (ms):                           995.00    ",
        "---------------Client-side Queueing---------------",
        "Mean Client Queue Time (ms):             125.00    ",
        "Median Client Queue Time (ms):           125.00    ",
        "P50 Client Queue Time (ms):              125.00    ",
        "P99 Client Queue Time (ms):              247.50    ",
        "---------------Speculative Decoding---------------",
        "Acceptance rate (%):                     75.00     ",
        "Acceptance length:                       2.50      ",
        "Drafts:                                  10        ",
        "Draft tokens:                            20        ",
        "Accepted tokens:                         15        ",
        "Per-position acceptance (%):",
        "  Position 0:                            100.00    ",
        "  Position 1:                            50.00     ",
        "==================================================",
    ]


def test_the_other_titles_are_vllm_s() -> None:
    text = table(ServeOptions(), figures.figures(RUN, [99]), ["tpot", "itl", "e2el"])
    assert "-----Time per Output Token (excl. 1st token)------\nMean TPOT (ms):  " in text
    assert "---------------Inter-token Latency----------------\nMean ITL (ms):  " in text
    assert "----------------End-to-end Latency----------------\nMean E2EL (ms):  " in text
    assert "Maximum request concurrency" not in text
    assert "Request rate configured" not in text


def test_engine_figures() -> None:
    page = """
ours_num_requests_running{engine="0"} 1.0
ours_prompt_tokens_total{engine="0"} 300.0
ours_prompt_tokens_total{engine="1"} 100.0
ours_generation_tokens_total{engine="0"} 100.0
ours_prefix_cache_queries_total{engine="0"} 400.0
ours_prefix_cache_hits_total{engine="0"} 100.0
ours_external_prefix_cache_hits_total{engine="0"} 7.0
ours_iteration_tokens_total_count{engine="0"} 50.0
ours_spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 4.0
"""
    counters = engine_side.from_text(page)
    assert counters is not None
    assert counters.accepted_at == {1: 4.0}
    done = counters.since(engine_side.Counters({"prompt_tokens": 200.0}))
    rows = dict(engine_side.rows(done, 2.0, weights_bytes=10**9))
    assert rows == {
        "Prompt tokens computed (tok/s):": 100.0,
        "Tokens generated (tok/s):": 50.0,
        "Prefix cache hit rate (%):": 25.0,
        "Preemptions:": 0,
        "Steps:": 50,
        "Tokens per step:": 6.0,
        "Weights read (GB/s):": 25.0,
    }
    assert engine_side.from_text("python_gc_objects_collected_total 5.0\n") is None
    assert "Steps:                                   50        " in engine_table(engine_side.rows(done, 2.0)).splitlines()


def test_engine_figures_of_an_llm() -> None:
    metrics = [
        Metric("vllm:num_requests_running", {}, value=0.0),
        Metric("vllm:prompt_tokens", {}, value=5.0),
        Metric("vllm:request_prompt_tokens", {}, count=99),
        Metric("vllm:iteration_tokens_total", {}, count=3),
    ]
    assert engine_side.from_metrics(metrics).values == {"prompt_tokens": 5.0, "iteration_tokens_total": 3.0}


@pytest.mark.parametrize("text", ["101", "-1", "a", "", "50,,99"])
def test_wrong_percentiles(text: str) -> None:
    with pytest.raises(ConfigError, match="metric-percentiles"):
        figures.parse_percentiles(text)


@pytest.mark.parametrize("word", ["ttft", "itl:5", "ttft:x", "ttft:-1", "tpot:nan"])
def test_wrong_goals(word: str) -> None:
    with pytest.raises(ConfigError, match="goodput"):
        figures.parse_goals([word])


def test_wrong_metric() -> None:
    with pytest.raises(ConfigError, match="ttfft"):
        figures.parse_metrics("ttfft,itl")


def test_percentiles_are_linear_between_neighbours() -> None:
    spread = figures.Spread.of([0.001 * i for i in range(1, 11)], [25, 90])
    assert spread.percentiles == {"25": pytest.approx(3.25), "90": pytest.approx(9.1)}
    assert spread.deviation == pytest.approx(math.sqrt(8.25))
    assert np.isclose(spread.mean, 5.5)
