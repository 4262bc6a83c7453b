"""/v1/chat/completions: a conversation in, the next message out, whole or in pieces."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.inputs import EncodedPrompt
from octavo.frontend.stream import RequestStream
from octavo.protocol.outputs import CompletionOutput, RequestOutput
from octavo.protocol.sampling_params import SamplingParams
from octavo.server.body import read, schema
from octavo.server.openai import serving
from octavo.server.openai.protocol import ChatRequest
from octavo.server.openai.reply import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprobs,
    ContentLogprob,
    Delta,
    Message,
    TokenLogprob,
    Usage,
    floored,
    prompt_logprobs_of,
    usage_of,
)
from octavo.server.sse import EventStream, event
from octavo.server.state import ServerState
from octavo.text.tokenizer import Tokenizer

router = APIRouter()
_WRITTEN = {"prompt": "messages", "logprobs": "top_logprobs"}  # parameter of the engine -> the field of a chat request that it comes from


@contextmanager
def _as_written() -> Iterator[None]:
    """What is wrong is named as this endpoint's clients write it."""
    try:
        yield
    except RequestError as error:
        if (name := _WRITTEN.get(error.parameter or "")) is None:
            raise
        fact = error.fact.replace(f"{error.parameter}:", f"{name}:", 1)
        raise RequestError(fact, error.hint, name) from None


@router.post("/v1/chat/completions", response_model=None, openapi_extra=schema(ChatRequest))
async def chat_completions(request: Request) -> Response:
    """Answer a conversation."""
    state: ServerState = request.app.state.server
    body = await read(request, ChatRequest)
    llm = state.engine()
    name = serving.model_name(state, body.model)
    chat = Chat(state, llm, body, name, f"chatcmpl-{body.request_id or request.state.request_id}")
    prompt = await chat.prompt()
    if body.use_beam_search:
        search = await chat.prepare_beams(prompt)
        if body.stream:
            return EventStream(serving.guarded(chat.events(serving.single(search))), [])
        return await serving.answer(request, chat.whole(search()))
    stream = await chat.start(prompt)
    if body.stream:
        return EventStream(serving.guarded(chat.events(stream)), [stream])
    return await serving.answer(request, chat.whole(serving.finish(stream)))


class Chat:
    """One chat request and what is told of its answer."""

    def __init__(self, state: ServerState, llm: AsyncLLM, body: ChatRequest, model: str, name: str) -> None:
        self.id = name
        self._state = state
        self._llm = llm
        self._body = body
        self._model = model
        self._created = int(time.time())
        self._by_id = serving.as_token_ids(body, state)
        self._role = (
            "assistant"
            if body.add_generation_prompt is not False and not body.continue_final_message
            else str(body.messages[-1].get("role"))
        )

    @property
    def max_tokens(self) -> int | None:
        body = self._body
        asked = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
        cap = self._llm.config.model.default_sampling.get("max_tokens")  # what the model's makers allow bounds what a client asks
        return min((n for n in (asked, cap) if n is not None), default=None)

    def params(self) -> SamplingParams:
        body = self._body
        logprobs = body.top_logprobs if body.logprobs else None
        return serving.sampling_params(body, self._llm.config.model.default_sampling, self.max_tokens, logprobs, body.prompt_logprobs)

    async def start(self, prompt: EncodedPrompt) -> RequestStream:
        """Hand the request to the engine."""
        with _as_written():
            return await self._llm.add_request(self.id, prompt, self.params(), priority=self._body.priority)

    async def prepare_beams(self, prompt: EncodedPrompt) -> Callable[[], Coroutine[Any, Any, RequestOutput]]:
        """Check a beam search, which begins when what is returned is called."""
        with _as_written():
            beam = serving.beam_params(self._body, self.max_tokens or 2**31)
            return await self._llm.prepare_beam_search(prompt, beam, self.id, priority=self._body.priority)

    async def prompt(self) -> EncodedPrompt:
        """The conversation as the chat template has it."""
        body = self._body
        variables = dict(body.chat_template_kwargs)
        if body.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", body.reasoning_effort)
        prompt = await self._llm.encode_chat(
            body.messages,
            add_generation_prompt=not body.continue_final_message if body.add_generation_prompt is None else body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            documents=body.documents,
            variables=variables,
        )
        tokenizer = self._llm.get_tokenizer()
        if body.add_special_tokens and tokenizer.adds_bos:
            prompt.token_ids.insert(0, tokenizer.bos_token_id)
        prompt.cache_salt = body.cache_salt
        return prompt

    # --- whole

    async def whole(self, outputs: Any) -> Response:
        """The answer in one piece. outputs: an awaitable of the last RequestOutput."""
        output: RequestOutput = await outputs
        body = self._body
        choices = [self._choice(each) for each in output.outputs]
        reply = ChatCompletion(
            id=self.id,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=self._usage(output, sum(len(each.token_ids) for each in output.outputs)),
            system_fingerprint=self._state.fingerprint,
            prompt_logprobs=prompt_logprobs_of(output),
            prompt_token_ids=output.prompt_token_ids if body.return_token_ids else None,
        )
        return Response(msgspec.json.encode(reply), media_type="application/json")

    def _choice(self, output: CompletionOutput) -> ChatChoice:
        return ChatChoice(
            index=output.index,
            message=Message(self._role, self._echoed() + output.text),
            logprobs=self._logprobs(output),
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            token_ids=output.token_ids if self._body.return_token_ids else None,
        )

    # --- in pieces

    async def events(self, outputs: AsyncIterator[RequestOutput]) -> AsyncGenerator[bytes, None]:
        """A role chunk for each choice, its text, a chunk with its finish_reason; then usage, if it was asked for."""
        choices = [_Growing() for _ in range(self._body.n)]
        options = self._body.stream_options
        last: RequestOutput | None = None
        async for output in outputs:
            chunks = [] if last is not None else self._openings(output)
            last = output
            for each in output.outputs:
                chunks += self._pieces(output, each, choices[each.index])
            if chunks:
                yield b"".join(chunks)
        if last is not None and options is not None and options.include_usage:
            usage = self._usage(last, sum(choice.num_tokens for choice in choices))
            yield event(ChatChunk(self.id, self._created, self._model, [], self._state.fingerprint, usage=usage))

    def _openings(self, output: RequestOutput) -> list[bytes]:
        prompt_ids = output.prompt_token_ids if self._body.return_token_ids and output.prompt_token_ids is not None else UNSET
        chunks = []
        for index in range(self._body.n):
            chunks.append(self._chunk(output, 0, ChatChunkChoice(index, Delta(role=self._role, content="")), prompt_ids))
            if echoed := self._echoed():
                chunks.append(self._chunk(output, 0, ChatChunkChoice(index, Delta(content=echoed))))
        return chunks

    def _pieces(self, output: RequestOutput, new: CompletionOutput, choice: "_Growing") -> list[bytes]:
        choice.add(new, self._logprobs(new))
        chunks = []
        if new.text:
            logprobs, token_ids = choice.take(self._body.return_token_ids)
            piece = ChatChunkChoice(new.index, Delta(content=new.text), logprobs, token_ids=token_ids)
            chunks.append(self._chunk(output, choice.num_tokens, piece))
        if new.finish_reason is not None:
            logprobs, token_ids = choice.take(self._body.return_token_ids)
            piece = ChatChunkChoice(new.index, Delta(), logprobs, new.finish_reason, new.stop_reason, token_ids)
            chunks.append(self._chunk(output, choice.num_tokens, piece))
        return chunks

    def _chunk(self, output: RequestOutput, num_tokens: int, choice: ChatChunkChoice, prompt_ids: list[int] | UnsetType = UNSET) -> bytes:
        options = self._body.stream_options
        usage: Usage | UnsetType | None = UNSET
        if options is not None and options.include_usage:
            usage = self._usage(output, num_tokens) if options.continuous_usage_stats else None
        return event(
            ChatChunk(self.id, self._created, self._model, [choice], self._state.fingerprint, usage=usage, prompt_token_ids=prompt_ids)
        )

    # --- parts

    def _usage(self, output: RequestOutput, num_tokens: int) -> Usage:
        return usage_of(len(output.prompt_token_ids or ()), num_tokens, serving.cached_tokens(output, self._state))

    def _echoed(self) -> str:
        last = self._body.messages[-1]
        content = last.get("content")
        return content if self._body.echo and last.get("role") == self._role and isinstance(content, str) else ""

    def _logprobs(self, output: CompletionOutput) -> ChatLogprobs | None:
        if not self._body.logprobs or output.logprobs is None:
            return None
        tokenizer, count, by_id = self._llm.get_tokenizer(), self._body.top_logprobs, self._by_id
        content = []
        for token, position in zip(output.token_ids, output.logprobs, strict=False):
            own = _entry(tokenizer, token, position[token], by_id)
            tops = [_entry(tokenizer, other, entry, by_id) for other, entry in serving.top_entries(position, count)]
            content.append(ContentLogprob(own.token, own.logprob, own.bytes, tops))
        return ChatLogprobs(content)


class _Growing:
    """What a choice has, and has not told yet: tokens without text of their own wait for the next chunk."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self._logprobs: list[ContentLogprob] | None = None
        self._token_ids: list[int] = []

    def add(self, new: CompletionOutput, logprobs: ChatLogprobs | None) -> None:
        self.num_tokens += len(new.token_ids)
        self._token_ids += new.token_ids
        if logprobs is not None:
            self._logprobs = (self._logprobs or []) + logprobs.content

    def take(self, with_ids: bool) -> tuple[ChatLogprobs | None, list[int] | UnsetType]:
        logprobs, self._logprobs = self._logprobs, None
        token_ids, self._token_ids = self._token_ids, []
        return (ChatLogprobs(logprobs) if logprobs else None), (token_ids if with_ids else UNSET)


def _entry(tokenizer: Tokenizer, token: int, entry: Any, by_id: bool) -> TokenLogprob:
    return TokenLogprob(serving.token_text(token, entry, by_id), floored(entry.logprob), list(tokenizer.token_bytes(token)))
