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
from octavo.server.openai.conversation import encode_conversation, text_of
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
    TimesOfRequest,
    TokenLogprob,
    Usage,
    floored,
    prompt_logprobs_of,
    usage_of,
)
from octavo.server.sse import event
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
    return await answer_chat(request, await read(request, ChatRequest))


async def answer_chat(request: Request, body: ChatRequest) -> Response:
    """The answer to a conversation, whole or as a stream."""
    state: ServerState = request.app.state.server
    llm = state.engine()
    name = serving.model_name(state, body.model)
    chat = Chat(state, llm, body, name, f"chatcmpl-{body.request_id or request.state.request_id}")
    prompt = await chat.prompt()
    if body.use_beam_search:
        search = await chat.prepare_beams(prompt)
        if body.stream:
            return serving.noted(serving.stream_of(chat.events(serving.single(search)), [], state), body)
        return serving.noted(await serving.answer(request, chat.whole(search())), body)
    stream = await chat.start(prompt)
    if body.stream:
        return serving.noted(serving.stream_of(chat.events(stream), [stream], state), body)
    return serving.noted(await serving.answer(request, chat.whole(serving.finish(stream))), body)


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
        self._role = state.options.response_role if body.begins_message else str(body.messages[-1].get("role"))
        self._tells_usage, self._tells_usage_always = serving.usage_wishes(body, state)

    @property
    def max_tokens(self) -> int | None:
        body = self._body
        asked = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
        return serving.cap_max_tokens(asked, self._llm.config.model.default_sampling)

    def params(self) -> SamplingParams:
        body = self._body
        logprobs = body.top_logprobs if body.logprobs else None
        return serving.sampling_params(body, self._llm.config.model.default_sampling, self.max_tokens, logprobs, body.prompt_logprobs)

    async def start(self, prompt: EncodedPrompt) -> RequestStream:
        """Hand the request to the engine."""
        with _as_written():
            params = self.params()
            stream = await self._llm.add_request(self.id, prompt, params, priority=self._body.priority)
        self._state.request_log.request(self.id, params, prompt)
        return stream

    async def prepare_beams(self, prompt: EncodedPrompt) -> Callable[[], Coroutine[Any, Any, RequestOutput]]:
        """Check a beam search, which begins when what is returned is called."""
        with _as_written():
            beam = serving.beam_params(self._body, self.max_tokens or 2**31)
            search = await self._llm.prepare_beam_search(prompt, beam, self.id, priority=self._body.priority)
        self._state.request_log.request(self.id, beam, prompt)
        return search

    async def prompt(self) -> EncodedPrompt:
        """The conversation as the chat template has it."""
        body = self._body
        variables = {} if body.reasoning_effort is None else {"reasoning_effort": body.reasoning_effort}
        prompt = await encode_conversation(self._state, self._llm, body, body.documents, variables)
        prompt.cache_salt = body.cache_salt
        return self._llm.inputs.truncated(prompt, body.truncate_prompt_tokens, body.truncation_side, self.max_tokens)

    # --- whole

    async def whole(self, outputs: Any) -> Response:
        """The answer in one piece. outputs: an awaitable of the last RequestOutput."""
        return Response(msgspec.json.encode(self.reply(await outputs)), media_type="application/json")

    def reply(self, output: RequestOutput) -> ChatCompletion:
        """The answer, from a request's last output."""
        body = self._body
        self._state.request_log.answers(self.id, is_streamed=False).add(output)
        num_tokens = sum(len(each.token_ids) for each in output.outputs)
        return ChatCompletion(
            id=self.id,
            created=self._created,
            model=self._model,
            choices=[self._choice(each) for each in output.outputs],
            usage=self._usage(output, num_tokens),
            system_fingerprint=self._state.fingerprint,
            prompt_logprobs=prompt_logprobs_of(output),
            prompt_token_ids=output.prompt_token_ids if body.return_token_ids else None,
            prompt_text=output.prompt if body.return_prompt_text else None,
            metrics=serving.metrics_of(output, 1, num_tokens, self._state) or UNSET,
        )

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
        log = self._state.request_log.answers(self.id, is_streamed=True)
        last: RequestOutput | None = None
        async for output in outputs:
            log.add(output)
            chunks = [] if last is not None else self._openings(output)
            last = output
            for each in output.outputs:
                chunks += self._pieces(output, each, choices[each.index])
            if chunks:
                yield b"".join(chunks)
        if last is not None and self._tells_usage:
            usage = self._usage(last, sum(choice.num_tokens for choice in choices))
            chunk = ChatChunk(self.id, self._created, self._model, [], self._state.fingerprint, usage=usage)
            chunk.metrics = self._times(last, choices[0].num_tokens)
            yield event(chunk)

    def _openings(self, output: RequestOutput) -> list[bytes]:
        chunks = []
        for index in range(self._body.n):
            first = self._chunk(output, 0, ChatChunkChoice(index, Delta(role=self._role, content="")))
            if self._body.return_token_ids and output.prompt_token_ids is not None:
                first.prompt_token_ids = output.prompt_token_ids
            if self._body.return_prompt_text and output.prompt is not None:
                first.prompt_text = output.prompt
            chunks.append(event(first))
            if echoed := self._echoed():
                chunks.append(event(self._chunk(output, 0, ChatChunkChoice(index, Delta(content=echoed)))))
        return chunks

    def _pieces(self, output: RequestOutput, new: CompletionOutput, choice: "_Growing") -> list[bytes]:
        choice.add(new, self._logprobs(new))
        chunks = []
        if new.text:
            logprobs, token_ids = choice.take(self._body.return_token_ids)
            piece = ChatChunkChoice(new.index, Delta(content=new.text), logprobs, token_ids=token_ids)
            chunks.append(event(self._chunk(output, choice.num_tokens, piece)))
        if new.finish_reason is not None:
            logprobs, token_ids = choice.take(self._body.return_token_ids)
            piece = ChatChunkChoice(new.index, Delta(), logprobs, new.finish_reason, new.stop_reason, token_ids)
            chunk = self._chunk(output, choice.num_tokens, piece)
            if not self._tells_usage:
                chunk.metrics = self._times(output, choice.num_tokens)
            chunks.append(event(chunk))
        return chunks

    def _chunk(self, output: RequestOutput, num_tokens: int, choice: ChatChunkChoice) -> ChatChunk:
        usage: Usage | UnsetType | None = UNSET
        if self._tells_usage:
            usage = self._usage(output, num_tokens) if self._tells_usage_always else None
        return ChatChunk(self.id, self._created, self._model, [choice], self._state.fingerprint, usage=usage)

    def _times(self, output: RequestOutput, num_tokens: int) -> TimesOfRequest | UnsetType:
        return (serving.metrics_of(output, 1, num_tokens, self._state) if self._body.n == 1 else None) or UNSET

    # --- parts

    def _usage(self, output: RequestOutput, num_tokens: int) -> Usage:
        return usage_of(len(output.prompt_token_ids or ()), num_tokens, serving.cached_tokens(output, self._state))

    def _echoed(self) -> str:
        last = self._body.messages[-1]
        return text_of(last) if self._body.echo and last.get("role") == self._role else ""

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
