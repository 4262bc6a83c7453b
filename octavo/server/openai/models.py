"""/v1/models: the names this server answers to."""

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.server.openai.serving import model_name
from octavo.server.state import ServerState

router = APIRouter()


class Permission(msgspec.Struct):
    """What OpenAI once told of each model; some clients still read it."""

    id: str
    created: int
    object: str = "model_permission"
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: str | None = None
    is_blocking: bool = False


class Model(msgspec.Struct):
    id: str
    created: int
    root: str
    max_model_len: int
    permission: list[Permission]
    object: str = "model"
    owned_by: str = "octavo"
    parent: str | None = None


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
    """root is the model as the operator typed it; max_model_len the context in tokens."""
    llm = state.engine()
    permission = Permission(f"modelperm-{name}", state.started_s)
    return Model(name, state.started_s, llm.config.model.name, llm.facts.max_model_len, [permission])


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
