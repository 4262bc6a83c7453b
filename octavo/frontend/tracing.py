"""Tracing: one OpenTelemetry span a request, with a child for each phase that it reached, sent in the background.

Nothing here can slow or fail a request: spans go into a bounded queue, and are dropped when nobody takes them.
"""

import itertools
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from octavo import environment, logging
from octavo.config.config import ObservabilityConfig
from octavo.protocol.sampling_params import BeamSearchParams, SamplingParams

FLUSH_S = 2.0  # how long an end may wait for a collector
SERVICE = "octavo"
HEADERS = ("traceparent", "tracestate")

# the W3C headers of the HTTP request that the running task works on
incoming: ContextVar[dict[str, str] | None] = ContextVar("incoming_trace", default=None)


@dataclass(slots=True, kw_only=True)
class RequestTrace:
    """A request that has ended; moments on time.monotonic()'s clock, None where it did not come so far."""

    request_id: str
    model: str
    params: SamplingParams | BeamSearchParams
    headers: Mapping[str, str] | None
    arrival_s: float
    queued_s: float | None = None
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    num_prompt: int = 0
    num_generated: int = 0
    num_sequences: int = 1
    finish_reasons: list[str] = field(default_factory=list)
    error: str | None = None


class Tracer:
    """Sends the spans of one engine to a collector. Needs the packages of the extra otel, which resolve() has looked for."""

    def __init__(self, config: ObservabilityConfig) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        logging.adopt("opentelemetry")
        self._exporter = _exporter(config.traces_protocol, config.traces_endpoint)
        self._processor = BatchSpanProcessor(self._exporter)
        resource = Resource.create({} if environment.names_trace_service() else {"service.name": SERVICE})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("octavo")
        self._propagator = TraceContextTextMapPropagator()
        self._is_shut_down = False

    def record(self, ended: RequestTrace) -> None:
        """The span of a request that has just ended."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        wall_ns, now_s = time.time_ns(), time.monotonic()

        def moment(seconds: float) -> int:
            return wall_ns - int((now_s - seconds) * 1e9)

        headers = {key.lower(): value for key, value in (ended.headers or {}).items()}
        span = self._tracer.start_span(
            "llm_request",
            context=self._propagator.extract(headers),
            kind=SpanKind.SERVER,
            attributes=_attributes(ended, now_s),
            start_time=moment(ended.arrival_s),
        )
        if span.is_recording():
            inside = set_span_in_context(span)
            for name, start, end in _phases(ended, now_s):
                self._tracer.start_span(name, context=inside, start_time=moment(start)).end(moment(end))
            if ended.error is not None:
                span.set_status(Status(StatusCode.ERROR, ended.error))
        span.end(wall_ns)

    def shutdown(self) -> None:
        """Send what is left, if that takes no longer than FLUSH_S. Can be called twice."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        ending = threading.Thread(target=self._end, name="octavo-traces", daemon=True)
        ending.start()
        ending.join(FLUSH_S)
        if ending.is_alive():  # the collector is away: no more attempts
            self._exporter.shutdown()

    def _end(self) -> None:
        self._processor.force_flush()
        self._provider.shutdown()


def _exporter(protocol: str, endpoint: str | None) -> Any:
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    return OverHttp(endpoint=endpoint)


def _attributes(ended: RequestTrace, now_s: float) -> dict[str, Any]:
    """Under vLLM's names."""
    params = ended.params
    found: dict[str, Any] = {
        "gen_ai.request.id": ended.request_id,
        "gen_ai.response.model": ended.model,
        "gen_ai.response.finish_reasons": ended.finish_reasons,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.n": params.beam_width if isinstance(params, BeamSearchParams) else params.n,
        "gen_ai.usage.prompt_tokens": ended.num_prompt,
        "gen_ai.usage.completion_tokens": ended.num_generated,
        "gen_ai.usage.num_sequences": ended.num_sequences,
        "gen_ai.latency.e2e": now_s - ended.arrival_s,
    }
    if params.max_tokens is not None:
        found["gen_ai.request.max_tokens"] = params.max_tokens
    if isinstance(params, SamplingParams):
        found["gen_ai.request.top_p"] = params.top_p
    queued = ended.arrival_s if ended.queued_s is None else ended.queued_s
    for name, start, end in (
        ("time_to_first_token", ended.arrival_s, ended.first_token_s),
        ("time_in_queue", queued, ended.scheduled_s),
        ("time_in_model_prefill", ended.scheduled_s, ended.first_token_s),
        ("time_in_model_decode", ended.first_token_s, ended.last_token_s),
        ("time_in_model_inference", ended.scheduled_s, ended.last_token_s),
    ):
        if start is not None and end is not None:
            found[f"gen_ai.latency.{name}"] = max(0.0, end - start)
    return found


def _phases(ended: RequestTrace, now_s: float) -> list[tuple[str, float, float]]:
    """What the request went through; the last phase of one that was cut off ends with it."""
    marks = [
        ("queue", ended.arrival_s if ended.queued_s is None else ended.queued_s),
        ("prefill", ended.scheduled_s),
        ("decode", ended.first_token_s),
        ("", ended.last_token_s),
    ]
    reached = [(name, at) for name, at in marks if at is not None]
    if reached[-1][0]:
        reached.append(("", now_s))
    return [(name, start, max(start, end)) for (name, start), (_, end) in itertools.pairwise(reached)]
