"""/tokenize and /detokenize: text or a conversation to token ids as a request would have them, and token ids to text."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from octavo.server.body import parsed, read, receive, schema
from octavo.server.openai.conversation import encode_conversation
from octavo.server.openai.protocol import Body, Conversation
from octavo.server.openai.serving import model_name, noted
from octavo.server.state import ServerState

router = APIRouter()


class TokenizeTextRequest(Body):
    """/tokenize of a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = Field(True, description="Put special tokens around the text, as /v1/completions does.")
    return_token_strs: bool = Field(False, description="Tell each token as the vocabulary spells it.")


class TokenizeChatRequest(Conversation):
    """/tokenize of a conversation."""

    model: str | None = None
    return_token_strs: bool = Field(False, description="Tell each token as the vocabulary spells it.")


class DetokenizeRequest(Body):
    """/detokenize."""

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0, le=2**63 - 1)]]


class Tokenized(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None = None


class Detokenized(msgspec.Struct):
    prompt: str


FORMS = [TokenizeTextRequest.model_json_schema(), TokenizeChatRequest.model_json_schema()]
_EITHER = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"anyOf": FORMS}}}}}


@router.post("/tokenize", response_model=None, openapi_extra=_EITHER)
async def tokenize(request: Request) -> Response:
    """The token ids of a text, or of a conversation."""
    state: ServerState = request.app.state.server
    data = await receive(request)
    is_chat = "messages" in (parsed(data, Body).model_extra or {})
    body = parsed(data, TokenizeChatRequest) if is_chat else parsed(data, TokenizeTextRequest)
    llm = state.engine()
    model_name(state, body.model)
    if isinstance(body, TokenizeChatRequest):
        prompt = await encode_conversation(state, llm, body)
    else:
        prompt = await llm.encode(body.prompt, body.add_special_tokens)
    ids = prompt.token_ids
    spelled = llm.get_tokenizer().convert_ids_to_tokens(ids) if body.return_token_strs else None
    return noted(_json(Tokenized(len(ids), llm.facts.max_model_len, ids, spelled)), body)


@router.post("/detokenize", response_model=None, openapi_extra=schema(DetokenizeRequest))
async def detokenize(request: Request) -> Response:
    """The text of token ids, special tokens included."""
    state: ServerState = request.app.state.server
    body = await read(request, DetokenizeRequest)
    llm = state.engine()
    model_name(state, body.model)
    return noted(_json(Detokenized(await llm.decode(body.tokens))), body)


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
