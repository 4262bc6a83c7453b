"""/invocations: one address for all kinds of requests, as SageMaker calls it; the body's fields tell which it is."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.server.body import parsed, receive
from octavo.server.openai.chat import answer_chat
from octavo.server.openai.completions import answer_completion
from octavo.server.openai.protocol import Body, ChatRequest, CompletionRequest

router = APIRouter()


@router.post("/invocations", response_model=None)
async def invocations(request: Request) -> Response:
    """A body with messages is a chat request, one with a prompt a completion request."""
    data = await receive(request)
    names = parsed(data, Body).model_extra or {}
    if "messages" in names:
        return await answer_chat(request, parsed(data, ChatRequest))
    if "prompt" in names:
        return await answer_completion(request, parsed(data, CompletionRequest))
    raise RequestError("the body is of no kind that this server answers", "send messages, or a prompt")
