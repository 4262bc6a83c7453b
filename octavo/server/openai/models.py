"""/v1/models: the names this server answers to."""

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.server.openai.serving import model_name
from octavo.server.state import ServerState

router = APIRouter()


class Model(msgspec.Struct):
    id: str
    created: int
    root: str
    max_model_len: int
    object: str = "model"
    owned_by: str = "octavo"
    parent: str | None = None
    permission: list[str] = []


class ModelList(msgspec.Struct):
    data: list[Model]
    object: str = "list"


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """All names."""
    state: ServerState = request.app.state.server
    return _json(ModelList([_model(state, name) for name in state.engine().config.model.served_names]))


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> Response:
    """One of them; 404 for another."""
    state: ServerState = request.app.state.server
    state.engine()
    return _json(_model(state, model_name(state, name)))


def _model(state: ServerState, name: str) -> Model:
    llm = state.engine()
    return Model(name, state.started_s, llm.config.model.name, llm.facts.max_model_len)


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
