"""The accounts of a real server: requests that end in every way, and the counters, histograms, gauges and answers that must agree."""

import json
import re
import select
import socket
import threading
import time
from collections import Counter
from typing import Any

import httpx
import pytest

from tests.server.collector import OverHttp, attributes
from tests.server.conftest import MAX_SEQS, QUEUE
from tests.server.ledger import Ledger
from tests.server.real_server import RealServer

PER_SEQUENCE = (
    "e2e_request_latency_seconds_count",
    "request_prompt_tokens_count",
    "request_generation_tokens_count",
    "request_params_max_tokens_count",
    "request_num_preemptions_count",
    "request_params_n_sum",
)
LONG = "a prompt of more than two blocks, so that what it has in the cache can be found again, by others and by itself: say "
TRACE = "0af7651916cd43dd8448eb211c80319c"


def check(ledger: Ledger) -> None:
    """What must be true whatever happened: nothing is counted twice or left out."""
    ended = ledger.grown("request_success_total")
    assert {name: ledger.grown(name) for name in PER_SEQUENCE} == dict.fromkeys(PER_SEQUENCE, ended)
    assert ledger.grown("request_params_n_count") == ledger.grown("request_max_num_generation_tokens_count")
    generated, begun = ledger.grown("generation_tokens_total"), ledger.grown("time_to_first_token_seconds_count")
    assert ledger.grown("request_generation_tokens_sum") == generated
    assert ledger.grown("inter_token_latency_seconds_count") == generated - begun
    for name in ("queue", "prefill", "decode", "inference"):
        assert ledger.grown(f"request_{name}_time_seconds_count") == begun
    assert ledger.grown("request_prefill_kv_computed_tokens_count") == begun
    cached = ledger.grown("prompt_tokens_by_source_total", source="local_cache_hit")
    assert ledger.grown("prompt_tokens_total") == ledger.grown("prompt_tokens_by_source_total")
    assert cached == ledger.grown("prompt_tokens_cached_total") == ledger.grown("prompt_tokens_cached_by_source_total", source="device")
    assert ledger.grown("prompt_tokens_total") <= ledger.grown("request_prompt_tokens_sum")


class Spent:
    """Adds up the usage that answers tell."""

    def __init__(self) -> None:
        self.prompt = self.completion = self.cached = 0

    def add(self, usage: dict[str, Any], n: int = 1) -> None:
        self.prompt += n * usage["prompt_tokens"]
        self.completion += usage["completion_tokens"]
        self.cached += usage["prompt_tokens_details"]["cached_tokens"] if n == 1 else 0


def complete(server: RealServer, prompt: str, **more: Any) -> dict[str, Any]:
    response = server.post("/v1/completions", model="scripted", prompt=prompt, **more)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_answers_and_counters_agree(metered_server: RealServer) -> None:
    ledger, spent = Ledger(metered_server.url), Spent()
    spent.add(complete(metered_server, "say p", max_tokens=50)["usage"])  # ends by itself
    spent.add(complete(metered_server, "say o", max_tokens=7)["usage"])  # is cut
    spent.add(complete(metered_server, "say o", max_tokens=90, stop=[" tack"])["usage"])  # stop string: the engine was ahead by a step
    chat = metered_server.post("/v1/chat/completions", messages=[{"role": "user", "content": "say t"}], max_tokens=40).json()
    spent.add(chat["usage"])
    events = metered_server.events(
        "/v1/chat/completions", messages=[{"role": "user", "content": "say x"}], max_tokens=40, stream_options={"include_usage": True}
    )
    spent.add(events[-2]["usage"])
    ledger.settle()
    check(ledger)
    assert ledger.grown("prompt_tokens_total") == spent.prompt == ledger.grown("request_prompt_tokens_sum")
    assert ledger.grown("generation_tokens_total") == spent.completion
    assert ledger.grown("request_success_total", finished_reason="stop") == 4
    assert ledger.grown("request_success_total", finished_reason="length") == 1
    assert ledger.served() == {("POST", "/v1/completions", "2xx"): 3, ("POST", "/v1/chat/completions", "2xx"): 2}


def test_found_prefixes_are_prompt_tokens_too(metered_server: RealServer) -> None:
    ledger, spent = Ledger(metered_server.url), Spent()
    for _ in range(3):
        spent.add(complete(metered_server, "1 " + LONG + "o", max_tokens=3)["usage"])
    ledger.settle()
    check(ledger)
    assert spent.cached > 0
    assert ledger.grown("prompt_tokens_cached_total") == spent.cached == ledger.grown("prefix_cache_hits_total")
    assert ledger.grown("prompt_tokens_total") == spent.prompt == ledger.grown("prefix_cache_queries_total")
    computed = ledger.grown("prompt_tokens_by_source_total", source="local_compute")
    assert computed == spent.prompt - spent.cached == ledger.grown("request_prefill_kv_computed_tokens_sum")


def test_sequences_of_one_request_count_each(metered_server: RealServer) -> None:
    ledger, spent = Ledger(metered_server.url), Spent()
    spent.add(complete(metered_server, "2 " + LONG + "o", max_tokens=5, n=3)["usage"], n=3)
    ledger.settle()
    check(ledger)
    assert ledger.grown("request_params_n_count") == 1
    assert ledger.grown("request_success_total", finished_reason="length") == 3
    assert (ledger.grown("prompt_tokens_total"), ledger.grown("generation_tokens_total")) == (spent.prompt, spent.completion)
    assert ledger.grown("request_max_num_generation_tokens_sum") == 5


def test_a_beam_search_counts_as_the_requests_that_it_is_made_of(metered_server: RealServer) -> None:
    ledger = Ledger(metered_server.url)
    answer = complete(metered_server, "say o", max_tokens=3, n=2, use_beam_search=True, temperature=0.0)
    ledger.settle()
    check(ledger)
    assert len(answer["choices"]) == 2
    assert ledger.grown("request_success_total") == 5  # one, then two in each of two rounds
    assert ledger.grown("generation_tokens_total") == 5
    assert ledger.grown("prompt_tokens_total") == ledger.grown("request_prompt_tokens_sum")


def test_what_a_preempted_request_does_again_counts_once(metered_server: RealServer) -> None:
    ledger, spent = Ledger(metered_server.url), Spent()
    answers: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda k=k: answers.append(complete(metered_server, f"{k} {LONG}o", max_tokens=350)))
        for k in range(3, 3 + MAX_SEQS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in answers:
        spent.add(answer["usage"])
    ledger.settle()
    check(ledger)
    assert ledger.grown("num_preemptions_total") > 0
    assert ledger.grown("request_num_preemptions_sum") == ledger.grown("num_preemptions_total")
    assert ledger.grown("prompt_tokens_total") == spent.prompt
    assert ledger.grown("generation_tokens_total") == spent.completion == MAX_SEQS * 350
    computed = ledger.grown("iteration_tokens_total_sum")
    assert computed > ledger.grown("prompt_tokens_by_source_total", source="local_compute") + spent.completion  # it was done again
    for name in ("lifetime", "idle_before_evict"):
        assert ledger.grown(f"kv_block_{name}_seconds_count") > 0


def test_requests_that_are_cut_off_are_accounted_for(metered_server: RealServer) -> None:
    """In decode, in the queue and in prefill; then one that aborts while nothing else runs."""
    ledger = Ledger(metered_server.url)
    streams = [_Stream(metered_server, f"{k} {LONG}o") for k in range(10, 10 + MAX_SEQS)]
    for stream in streams:
        stream.wait_text()
    queued = _Stream(metered_server, "11 " + LONG + "o")
    _wait(lambda: metered_server.metric("num_requests_waiting") == 1)
    queued.close()
    _wait(lambda: metered_server.metric("num_requests_waiting") == 0)
    for stream in streams:
        stream.close()
    ledger.settle()
    prefilling = _Stream(metered_server, "b" * 900 + "o")
    _wait(lambda: metered_server.metric("num_requests_running") == 1)
    prefilling.close()
    ledger.settle()
    check(ledger)
    assert ledger.grown("request_success_total", finished_reason="abort") == MAX_SEQS + 2
    assert ledger.grown("request_success_total") == MAX_SEQS + 2
    told = sum(stream.num_events for stream in streams)
    assert ledger.grown("generation_tokens_total") >= told
    assert sum(ledger.served().values()) == MAX_SEQS + 2


def test_refused_requests_are_told_apart(metered_server: RealServer) -> None:
    """Wrong ones are no requests of the engine; one that the core refuses ends with an error; the queue's limit has its own counter."""
    ledger = Ledger(metered_server.url)
    assert metered_server.post("/v1/completions", prompt="x", temperature=-1).status_code == 400
    assert metered_server.post("/v1/completions", prompt="x", model="none").status_code == 404
    assert httpx.get(f"{metered_server.url}/no/such/path").status_code == 404
    assert httpx.get(f"{metered_server.url}/another/one?x=1").status_code == 404
    ledger.settle()
    assert ledger.grown("request_success_total") == 0
    streams = [_Stream(metered_server, f"{k} say o") for k in range(MAX_SEQS + QUEUE)]
    _wait(lambda: metered_server.metric("num_requests_running") + metered_server.metric("num_requests_waiting") == MAX_SEQS + QUEUE)
    assert metered_server.post("/v1/completions", prompt="one too many o", max_tokens=2).status_code == 503
    for stream in streams:
        stream.close()
    ledger.settle()
    check(ledger)
    assert ledger.grown("admission_rejections_total", reason="max_num_queued_reqs") == 1
    assert ledger.grown("admission_rejections_total") == 1
    assert ledger.grown("request_success_total", finished_reason="abort") == MAX_SEQS + QUEUE
    assert ledger.served() == {
        ("POST", "/v1/completions", "4xx"): 2,
        ("POST", "/v1/completions", "5xx"): 1,
        ("POST", "/v1/completions", "2xx"): MAX_SEQS + QUEUE,
        ("GET", "none", "4xx"): 2,
    }


def test_every_line_of_the_log_is_an_object(metered_server: RealServer) -> None:
    forged = "forged\nINFO 01-01 00:00:00 [server] all is well"
    complete(metered_server, "say p", max_tokens=3)
    response = httpx.get(metered_server.url + "/v1/models/%0Aforged", headers={"x-request-id": "mine-7"}, timeout=20)
    assert response.status_code == 404
    assert metered_server.post("/v1/completions", prompt=forged, model=forged).status_code == 404
    _wait(lambda: any("mine-7" in line for line in metered_server.lines))
    _wait(lambda: any("Avg prompt throughput" in line for line in metered_server.lines))
    lines = [json.loads(line) for line in list(metered_server.lines)]
    for line in lines:
        assert {"time", "level", "process", "pid", "logger", "message"} <= line.keys(), line
    assert {line["process"] for line in lines} == {"server", "core", "worker"}
    access = next(line for line in lines if line.get("request_id") == "mine-7")
    assert "/v1/models/%0Aforged" in access["message"]
    assert "404" in access["message"]
    throughput = next(line["message"] for line in lines if "Avg prompt throughput" in line["message"])
    number = r"\d+\.\d"
    assert re.fullmatch(
        rf"Engine 000: Avg prompt throughput: {number} tokens/s, Avg generation throughput: {number} tokens/s, Running: \d+ reqs, "
        rf"Waiting: \d+ reqs(, Deferred: \d+ reqs)?(, Preemptions: \d+)?, CPU KV cache usage: {number}%, Prefix cache hit rate: {number}%",
        throughput,
    )


def test_a_request_is_one_trace_with_its_phases(metered_server: RealServer, collector: OverHttp) -> None:
    parent = "b7ad6b7169203331"
    headers = {"traceparent": f"00-{TRACE}-{parent}-01", "x-request-id": "traced"}
    body = {"model": "scripted", "prompt": "say o", "max_tokens": 6, "temperature": 0.5, "n": 2}
    assert httpx.post(f"{metered_server.url}/v1/completions", json=body, headers=headers, timeout=30).status_code == 200
    span = collector.of_request("cmpl-traced")
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.name) == (TRACE, parent, "llm_request")
    told = attributes(span)
    assert (told["gen_ai.usage.prompt_tokens"], told["gen_ai.usage.completion_tokens"], told["gen_ai.request.n"]) == (5, 12, 2)
    assert (told["gen_ai.request.temperature"], told["gen_ai.request.max_tokens"], told["gen_ai.response.model"]) == (0.5, 6, "scripted")
    assert told["gen_ai.response.finish_reasons"] == ["length", "length"]
    phases = collector.phases(span)
    assert list(phases) == ["queue", "prefill", "decode"]
    starts = [span.start_time_unix_nano, *(phase.start_time_unix_nano for phase in phases.values())]
    assert starts == sorted(starts)
    assert phases["decode"].end_time_unix_nano <= span.end_time_unix_nano
    assert phases["queue"].end_time_unix_nano == phases["prefill"].start_time_unix_nano
    whole = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    assert told["gen_ai.latency.e2e"] == pytest.approx(whole, abs=1e-3)
    assert {resource["service.name"] for resource, _ in collector.spans} == {"octavo"}


def test_a_beam_search_is_one_trace(metered_server: RealServer, collector: OverHttp) -> None:
    headers = {"x-request-id": "beams"}
    body = {"model": "scripted", "prompt": "say o", "max_tokens": 3, "n": 2, "use_beam_search": True}
    answer = httpx.post(f"{metered_server.url}/v1/completions", json=body, headers=headers, timeout=30).json()
    told = attributes(collector.of_request("cmpl-beams"))
    assert (told["gen_ai.usage.completion_tokens"], told["gen_ai.usage.num_sequences"]) == (answer["usage"]["completion_tokens"], 2)
    names = Counter(attributes(span).get("gen_ai.request.id") for _, span in collector.spans)
    assert names["cmpl-beams"] == 1


class _Stream:
    """A completion that goes on for long; its connection can be closed at any moment."""

    def __init__(self, server: RealServer, prompt: str) -> None:
        self._data = b""
        host, port = server.url.removeprefix("http://").split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        body = json.dumps({"model": "scripted", "prompt": prompt, "max_tokens": 700, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def wait_text(self) -> None:
        while b"data: {" not in self._data:
            received = self._socket.recv(65536)
            assert received
            self._data += received

    @property
    def num_events(self) -> int:
        return self._data.count(b"data: {")

    def close(self) -> None:
        self._socket.close()


def _wait(is_true: Any, timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < end
        select.select([], [], [], 0.005)
