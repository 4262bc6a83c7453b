"""A collector of OpenTelemetry traces: takes them over HTTP or gRPC as a real one does, and keeps the spans."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse


class Collector:
    """`spans`: (the attributes of the service, the span), in the order in which they came."""

    def __init__(self) -> None:
        self.spans: list[tuple[dict[str, Any], Any]] = []
        self._news = threading.Condition()

    def take(self, request: ExportTraceServiceRequest) -> None:
        with self._news:
            for each in request.resource_spans:
                resource = attributes(each.resource)
                self.spans += [(resource, span) for scope in each.scope_spans for span in scope.spans]
            self._news.notify_all()

    def of_request(self, request_id: str, timeout_s: float = 20) -> Any:
        """The span of a request, when it has come."""
        end = time.monotonic() + timeout_s
        with self._news:
            while True:
                for _, span in self.spans:
                    if attributes(span).get("gen_ai.request.id") == request_id:
                        return span
                assert self._news.wait(end - time.monotonic()), [attributes(span) for _, span in self.spans]

    def phases(self, span: Any) -> dict[str, Any]:
        """The spans inside a request's, by name."""
        return {other.name: other for _, other in self.spans if other.parent_span_id == span.span_id}


def attributes(holder: Any) -> dict[str, Any]:
    """Of a span or a resource, as plain values."""
    found = {}
    for each in holder.attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return found


class OverHttp(Collector):
    """POST /v1/traces on a port of its own."""

    def __init__(self) -> None:
        super().__init__()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                assert self.headers["content-type"] == "application/x-protobuf"
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(ExportTraceServiceResponse().SerializeToString())

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class OverGrpc(Collector):
    """The TraceService on a port of its own."""

    def __init__(self) -> None:
        import grpc
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
            TraceServiceServicer,
            add_TraceServiceServicer_to_server,
        )

        super().__init__()
        collector = self

        class Service(TraceServiceServicer):  # type: ignore[misc]
            def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
                collector.take(request)
                return ExportTraceServiceResponse()

        self._server = grpc.server(ThreadPoolExecutor(1))
        add_TraceServiceServicer_to_server(Service(), self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()
