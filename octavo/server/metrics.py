"""/metrics: the engine's series, as Prometheus reads them."""

import asyncio

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.responses import PlainTextResponse, Response

from octavo.server.state import ServerState

router = APIRouter()


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Text, or OpenMetrics where the client accepts it. No series before the engine is up, or with --disable-log-stats."""
    state: ServerState = request.app.state.server
    source = state.llm.metrics if state.llm is not None else None
    registry = source.registry if source is not None else CollectorRegistry()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    # many series take milliseconds: not on the loop that streams
    text = await asyncio.to_thread(encode, registry)
    return Response(text, headers={"content-type": content_type})
