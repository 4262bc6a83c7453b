"""/reset_prefix_cache: forget all cached prefixes. A development endpoint: only with OCTAVO_SERVER_DEV_MODE=1."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo import environment
from octavo.config.options import ServerOptions
from octavo.frontend.inputs import unavailable
from octavo.server.errors import ErrorInfo, response_of
from octavo.server.state import ServerState

router = APIRouter()


def is_offered(_: ServerOptions) -> bool:
    return environment.server_dev_mode()


@router.post("/reset_prefix_cache")
async def reset_prefix_cache(request: Request, reset_running_requests: bool = False, reset_external: bool = False) -> Response:
    """200 without a body when it is empty; 409 while requests hold blocks, and nothing was forgotten."""
    state: ServerState = request.app.state.server
    for name, is_asked in (("reset_running_requests", reset_running_requests), ("reset_external", reset_external)):
        if is_asked:
            raise unavailable(name, name)
    if await state.engine().reset_prefix_cache():
        return Response()
    return response_of(ErrorInfo("requests that run hold cached prefixes: try again when they are done", "ConflictError", None, 409))
