"""/metrics: the engine's, the HTTP server's and the process's series, as Prometheus reads them."""

import asyncio
from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, Request
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import exposition as openmetrics
from starlette.responses import PlainTextResponse, Response

from octavo.server.state import ServerState

router = APIRouter()
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def _encoder(accept: str) -> tuple[Callable[..., bytes], str]:
    encode, content_type = choose_encoder(accept)
    if content_type.startswith("application/openmetrics-text"):
        # every name is one that any Prometheus takes; told to escape, this writer turns the colon of the samples, but not of their
        # family, into an underscore, and a scraper that prefers OpenMetrics would store other names than one that does not
        return partial(openmetrics.generate_latest, escaping=openmetrics.ALLOWUTF8), OPENMETRICS
    return encode, content_type


class _Collected:
    """What an encoder takes for a registry: series that have been read already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Text, or OpenMetrics where the client accepts it. The engine's series are not there before it is up, or with --disable-log-stats."""
    state: ServerState = request.app.state.server
    families = list(state.http_metrics.collect())
    if state.llm is not None and state.llm.metrics is not None:
        families += state.llm.metrics.collect()
    encode, content_type = _encoder(request.headers.get("accept", ""))

    def work() -> bytes:
        return encode(_Collected([*families, *state.process_metrics.collect()]))  # type: ignore[arg-type]

    # reading is quick, and in step with what is recorded; writing many series takes milliseconds: not on the loop that streams
    return Response(await asyncio.to_thread(work), headers={"content-type": content_type})
