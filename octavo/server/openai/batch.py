"""/v1/chat/completions/batch: several conversations in one request, each answered as if it came alone; a wrong one refuses all."""

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo import environment
from octavo.errors import RequestError
from octavo.frontend.stream import RequestStream
from octavo.server.body import read, schema
from octavo.server.openai import serving
from octavo.server.openai.chat import Chat
from octavo.server.openai.protocol import BatchChatRequest
from octavo.server.openai.reply import ChatCompletion, Usage
from octavo.server.state import ServerState

router = APIRouter()


@router.post("/v1/chat/completions/batch", response_model=None, openapi_extra=schema(BatchChatRequest))
async def batch_chat_completions(request: Request) -> Response:
    """Answer several conversations, whole; choice i * n + k is the k-th answer to conversation i."""
    state: ServerState = request.app.state.server
    body = await read(request, BatchChatRequest)
    llm = state.engine()
    name = serving.model_name(state, body.model)
    if len(body.messages) > 1 and len(body.messages) * max(1, body.n) > environment.max_num_sequences():
        limit = environment.max_num_sequences()
        raise RequestError(f"{len(body.messages)} conversations with n = {body.n} are more than {limit} answers", parameter="messages")
    answer_id = f"chatcmpl-{body.request_id or request.state.request_id}"
    chats = [Chat(state, llm, each, name, answer_id) for each in body.requests()]
    streams: list[RequestStream] = []
    try:
        prompts = [await chat.prompt() for chat in chats]
        for chat, prompt in zip(chats, prompts, strict=True):
            streams.append(await chat.start(prompt))
        return serving.noted(await serving.answer(request, _whole(chats, streams, body.n)), body)
    finally:
        for stream in streams:
            await stream.aclose()


async def _whole(chats: list[Chat], streams: list[RequestStream], n: int) -> Response:
    tasks = [asyncio.ensure_future(serving.finish(stream)) for stream in streams]
    try:
        outputs = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    replies = [chat.reply(output) for chat, output in zip(chats, outputs, strict=True)]
    for number, reply in enumerate(replies):
        for choice in reply.choices:
            choice.index += number * n
    whole: ChatCompletion = replies[0]
    whole.choices = [choice for reply in replies for choice in reply.choices]
    whole.usage = _sum([reply.usage for reply in replies])
    if len(replies) > 1:  # these are of one prompt
        whole.prompt_logprobs = whole.prompt_token_ids = whole.prompt_text = None
        whole.metrics = msgspec.UNSET
    return Response(msgspec.json.encode(whole), media_type="application/json")


def _sum(usages: list[Usage]) -> Usage:
    def total(name: str) -> Any:
        return sum(getattr(usage, name) for usage in usages)

    details = [usage.prompt_tokens_details for usage in usages if usage.prompt_tokens_details is not None]
    if details:
        details[0].cached_tokens = sum(each.cached_tokens for each in details)
    return Usage(total("prompt_tokens"), total("total_tokens"), total("completion_tokens"), details[0] if details else None)
