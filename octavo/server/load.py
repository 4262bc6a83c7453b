"""/load: how many requests are being answered."""

from fastapi import APIRouter, Request

from octavo.server.state import ServerState

router = APIRouter()


@router.get("/load")
async def load(request: Request) -> dict[str, int]:
    """Requests that are being answered now; 0 at all times without --enable-server-load-tracking."""
    state: ServerState = request.app.state.server
    return {"server_load": state.load}
