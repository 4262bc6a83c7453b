"""Tracing over gRPC, and with a collector that is away. HTTP is tested with a real server."""

import socket
import time
from collections.abc import Iterator

import pytest

from octavo.frontend.llm import LLM
from octavo.frontend.tracing import FLUSH_S, RequestTrace, Tracer
from octavo.protocol.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer
from tests import configs
from tests.server.collector import OverGrpc, attributes
from tests.unit.frontend.scripted import ScriptedClient, ScriptedEngine, make_config
from tests.unit.frontend.test_async_llm import running


@pytest.fixture(scope="module")
def collector() -> Iterator[OverGrpc]:
    found = OverGrpc()
    yield found
    found.close()


def trace(name: str, **more: object) -> RequestTrace:
    now = time.monotonic()
    fields: dict[str, object] = {
        "request_id": name,
        "model": "m",
        "params": SamplingParams(max_tokens=4),
        "headers": None,
        "arrival_s": now - 4,
        "queued_s": now - 3,
        "scheduled_s": now - 2,
        "first_token_s": now - 1,
        "last_token_s": now,
    }
    return RequestTrace(**(fields | more))  # type: ignore[arg-type]


def make(endpoint: str, **more: str) -> Tracer:
    return Tracer(configs.make_config(traces_endpoint=endpoint, **more).observability)


def test_spans_arrive_over_grpc_when_the_engine_ends(collector: OverGrpc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    tracer = make(collector.endpoint)
    tracer.record(trace("whole", headers={"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}))
    tracer.record(trace("in prefill", first_token_s=None, last_token_s=None, finish_reasons=["abort"]))
    tracer.record(trace("never begun", queued_s=None, scheduled_s=None, first_token_s=None, last_token_s=None))
    tracer.record(trace("wrong", error="the logits are no numbers"))
    tracer.shutdown()
    tracer.shutdown()
    whole = collector.of_request("whole")
    assert whole.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    told = attributes(whole)
    latencies = {"time_to_first_token": 3, "time_in_queue": 1, "time_in_model_prefill": 1, "time_in_model_decode": 1, "e2e": 4}
    assert {name: round(told[f"gen_ai.latency.{name}"]) for name in latencies} == latencies
    assert round(told["gen_ai.latency.time_in_model_inference"]) == 2
    assert [list(collector.phases(collector.of_request(name))) for name in ("in prefill", "never begun")] == [
        ["queue", "prefill"],
        ["queue"],
    ]
    assert collector.of_request("wrong").status.message == "the logits are no numbers"
    assert {resource["service.name"] for resource, _ in collector.spans} == {"mine"}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_a_collector_that_is_away_costs_nothing(protocol: str, tokenizer: Tokenizer) -> None:
    """More requests than the queue holds are answered as ever, and the end waits no longer than it may."""
    with socket.create_server(("127.0.0.1", 0)) as taken:  # nobody accepts, nobody answers
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with running(tokenizer, "ab", traces_endpoint=endpoint, traces_protocol=protocol) as (llm, _):
            async for output in llm.generate("x", SamplingParams(max_tokens=2), "r"):
                last = output
            assert last.finished
            assert llm._tracer is not None
            for number in range(2100):
                llm._tracer.record(trace(str(number)))
            began = time.monotonic()
        assert time.monotonic() - began < FLUSH_S + 10


def test_a_trace_that_the_caller_does_not_sample_is_not_sent(collector: OverGrpc) -> None:
    tracer = make(collector.endpoint)
    tracer.record(trace("unsampled", headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}))
    tracer.record(trace("broken header", headers={"traceparent": "none"}))
    tracer.shutdown()
    collector.of_request("broken header")
    assert "unsampled" not in [attributes(span).get("gen_ai.request.id") for _, span in collector.spans]


def test_a_batch_of_prompts_is_traced_too(collector: OverGrpc, tokenizer: Tokenizer) -> None:
    config = make_config(tokenizer, traces_endpoint=collector.endpoint)
    with LLM.from_config(config, ScriptedClient(ScriptedEngine(tokenizer, "ab")), tokenizer) as llm:  # type: ignore[arg-type]
        llm.generate(["x", "y"], SamplingParams(max_tokens=2), use_tqdm=False)
    told = [attributes(collector.of_request(name)) for name in ("0", "1")]
    assert [each["gen_ai.usage.completion_tokens"] for each in told] == [2, 2]
