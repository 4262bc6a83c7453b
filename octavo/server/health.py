"""/health and /ping: the engine lives. /ready: it takes requests. All are 200 without a body, or 503."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.server.errors import ErrorInfo, response_of
from octavo.server.state import Phase, ServerState

router = APIRouter()


@router.get("/health", response_class=Response)
async def health(request: Request) -> Response:
    """200 while the engine lives, also while the server drains; 503 before it is loaded and after its death."""
    state: ServerState = request.app.state.server
    return Response() if state.is_alive else _unavailable(state)


@router.get("/ping", response_class=Response)
@router.post("/ping", response_class=Response)
async def ping(request: Request) -> Response:
    """The same as /health, under the name that SageMaker asks for."""
    return await health(request)


@router.get("/ready", response_class=Response)
async def ready(request: Request) -> Response:
    """200 while new requests are taken."""
    state: ServerState = request.app.state.server
    return Response() if state.is_ready else _unavailable(state)


def _unavailable(state: ServerState) -> Response:
    why = Phase.DEAD if state.llm is not None and state.llm.errored else state.phase
    return response_of(ErrorInfo(why.value, "ServiceUnavailableError", None, 503))
