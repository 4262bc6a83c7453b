"""/v1/chat/completions: a conversation in, the next message out, whole or in pieces."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.inputs import EncodedPrompt
from octavo.frontend.messages import PROMPT_END
from octavo.frontend.reading import MarkerIds, Reader
from octavo.frontend.stream import RequestStream
from octavo.grammar.called_tools import spec_when_called
from octavo.grammar.tool_choice import spec_for
from octavo.parsing.continued import prompt_end
from octavo.parsing.events import Content, Parser
from octavo.parsing.machine import open_parser
from octavo.protocol.outputs import CompletionOutput, RequestOutput
from octavo.protocol.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.server.body import read, schema
from octavo.server.openai import serving
from octavo.server.openai.conversation import encode_conversation, text_of
from octavo.server.openai.form import form_field, read_form
from octavo.server.openai.protocol import ChatRequest
from octavo.server.openai.reply import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprobs,
    ContentLogprob,
    Delta,
    TimesOfRequest,
    TokenLogprob,
    Usage,
    floored,
    prompt_logprobs_of,
    usage_of,
)
from octavo.server.openai.spoken import Spoken
from octavo.server.openai.tools import call_id, num_calls
from octavo.server.sse import event
from octavo.server.state import ServerState
from octavo.text.tokenizer import Tokenizer

router = APIRouter()
_WRITTEN = {"prompt": "messages", "logprobs": "top_logprobs"}  # parameter of the engine -> the field of a chat request that it comes from


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
        self._offer = body.offer
        self._tool_format = state.format_for(self._offer)
        form = form_field(body) if body.response_format or body.structured_outputs else "tools"
        self._written = {**_WRITTEN, "structured_outputs": form}
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
        defaults = self._llm.config.model.default_sampling
        return serving.sampling_params(body, defaults, self.max_tokens, logprobs, body.prompt_logprobs, self._form())

    def _form(self) -> StructuredOutputsParams | None:
        """What the answer must look like: as the request asks, and as a call where the model must make one."""
        asked, offer = read_form(self._body.response_format, self._body.structured_outputs), self._offer
        if self._tool_format is None:
            return asked
        if not offer.is_forced:
            level = self._state.options.tool_strict_level
            return spec_when_called(self._tool_format, offer.tools, level, offer.is_parallel, asked)
        if asked is not None:
            raise RequestError(
                "an answer that must be a call of a tool has no other form",
                "leave response_format and structured_outputs away, or send tool_choice auto",
                "tool_choice",
            )
        return spec_for(self._tool_format, offer.callable_tools, "required", offer.is_parallel)

    async def start(self, prompt: EncodedPrompt) -> RequestStream:
        """Hand the request to the engine."""
        with serving.as_written(self._written):
            params = self.params()
            stream = await self._llm.add_request(self.id, prompt, params, priority=self._body.priority, reader=self._reader(prompt))
        self._state.request_log.request(self.id, params, prompt)
        return stream

    async def prepare_beams(self, prompt: EncodedPrompt) -> Callable[[], Coroutine[Any, Any, RequestOutput]]:
        """Check a beam search, which begins when what is returned is called."""
        with serving.as_written(self._written):
            beam = serving.beam_params(self._body, self.max_tokens or 2**31)
            reader = self._reader(prompt)
            search = await self._llm.prepare_beam_search(prompt, beam, self.id, priority=self._body.priority, reader=reader)
        self._state.request_log.request(self.id, beam, prompt)
        return search

    async def prompt(self) -> EncodedPrompt:
        """The conversation as the chat template has it."""
        body = self._body
        options, effort = self._state.options, body.reasoning_effort
        variables = {} if effort is None else {"reasoning_effort": options.reasoning_effort_map.get(effort, effort)}
        shows_tools = self._offer.is_open or not options.exclude_tools_when_tool_choice_none
        prompt = await encode_conversation(self._state, self._llm, body, body.documents, variables, shows_tools)
        prompt.cache_salt = body.cache_salt
        return self._llm.inputs.truncated(prompt, body.truncate_prompt_tokens, body.truncation_side, self.max_tokens)

    def _reader(self, prompt: EncodedPrompt) -> Reader | None:
        """What takes the answers apart; None if there is nothing in them but text."""
        body, reasoning = self._body, self._llm.reasoning_format
        if self._tool_format is None and reasoning is None:
            return None
        end = (prompt.text or "")[-PROMPT_END:]
        if body.continue_final_message:
            end = prompt_end(reasoning, text_of(body.messages[-1]), end)

        def open_one(markers: MarkerIds) -> Parser:
            return open_parser(
                tool_format=self._tool_format,
                reasoning_format=reasoning,
                tools=self._offer.callable_tools,
                markers=markers,
                prompt_end=end,
                whole_calls=False,
                keep_special_tokens=not body.skip_special_tokens,
            )

        return Reader(open_one, keeps_one_call=not self._offer.is_parallel, counts_reasoning=reasoning is not None)

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
            usage=self._usage(output, num_tokens, _num_reasoning(output.outputs)),
            system_fingerprint=self._state.fingerprint,
            prompt_logprobs=prompt_logprobs_of(output),
            prompt_token_ids=output.prompt_token_ids if body.return_token_ids else None,
            prompt_text=output.prompt if body.return_prompt_text else None,
            metrics=serving.metrics_of(output, 1, num_tokens, self._state) or UNSET,
        )

    def _choice(self, output: CompletionOutput) -> ChatChoice:
        events = [Content(output.text)] if output.events is None else output.events
        return ChatChoice(
            index=output.index,
            message=self._spoken().message(self._role, events, self._echoed()),
            logprobs=self._logprobs(output),
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            token_ids=output.token_ids if self._body.return_token_ids else None,
        )

    # --- in pieces

    async def events(self, outputs: AsyncIterator[RequestOutput]) -> AsyncGenerator[bytes, None]:
        """A role chunk for each choice, its text, a chunk with its finish_reason; then usage, if it was asked for."""
        choices = [_Growing(self._spoken()) for _ in range(self._body.n)]
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
            usage = self._usage(last, sum(choice.num_tokens for choice in choices), _num_reasoning(choices))
            chunk = ChatChunk(self.id, self._created, self._model, [], self._state.fingerprint, usage=usage)
            chunk.metrics = self._times(last, choices[0].num_tokens)
            yield event(chunk)

    def _openings(self, output: RequestOutput) -> list[bytes]:
        chunks = []
        for index in range(self._body.n):
            first = self._chunk(output, None, ChatChunkChoice(index, Delta(role=self._role, content="")))
            if self._body.return_token_ids and output.prompt_token_ids is not None:
                first.prompt_token_ids = output.prompt_token_ids
            if self._body.return_prompt_text and output.prompt is not None:
                first.prompt_text = output.prompt
            chunks.append(event(first))
            if echoed := self._echoed():
                chunks.append(event(self._chunk(output, None, ChatChunkChoice(index, Delta(content=echoed)))))
        return chunks

    def _pieces(self, output: RequestOutput, new: CompletionOutput, choice: "_Growing") -> list[bytes]:
        choice.add(new, self._logprobs(new))
        chunks = []
        for delta in choice.deltas(new):
            logprobs, token_ids = choice.take(self._body.return_token_ids)
            piece = ChatChunkChoice(new.index, delta, logprobs, token_ids=token_ids)
            chunks.append(event(self._chunk(output, choice, piece)))
        if new.finish_reason is not None:
            logprobs, token_ids = choice.take(self._body.return_token_ids)
            piece = ChatChunkChoice(new.index, Delta(), logprobs, new.finish_reason, new.stop_reason, token_ids)
            chunk = self._chunk(output, choice, piece)
            if not self._tells_usage:
                chunk.metrics = self._times(output, choice.num_tokens)
            chunks.append(event(chunk))
        return chunks

    def _chunk(self, output: RequestOutput, so_far: "_Growing | None", choice: ChatChunkChoice) -> ChatChunk:
        usage: Usage | UnsetType | None = UNSET
        if self._tells_usage:
            usage = self._usage_so_far(output, so_far) if self._tells_usage_always else None
        return ChatChunk(self.id, self._created, self._model, [choice], self._state.fingerprint, usage=usage)

    def _usage_so_far(self, output: RequestOutput, choice: "_Growing | None") -> Usage:
        return self._usage(output, 0) if choice is None else self._usage(output, choice.num_tokens, choice.num_reasoning_tokens)

    def _times(self, output: RequestOutput, num_tokens: int) -> TimesOfRequest | UnsetType:
        return (serving.metrics_of(output, 1, num_tokens, self._state) if self._body.n == 1 else None) or UNSET

    # --- parts

    def _spoken(self) -> Spoken:
        body, told = self._body, self._state.options.reasoning_field
        earlier, form = num_calls(body.messages), self._tool_format
        fields = ("reasoning", "reasoning_content") if told == "both" else (told,)
        return Spoken(lambda name, index: call_id(form, name, earlier + index), fields if body.include_reasoning else ())

    def _usage(self, output: RequestOutput, num_tokens: int, num_reasoning: int | None = None) -> Usage:
        num_prompt = len(output.prompt_token_ids or ())
        return usage_of(num_prompt, num_tokens, serving.cached_tokens(output, self._state), num_reasoning)

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

    def __init__(self, spoken: Spoken) -> None:
        self.num_tokens = 0
        self.num_reasoning_tokens: int | None = None
        self._spoken = spoken
        self._logprobs: list[ContentLogprob] | None = None
        self._token_ids: list[int] = []

    def add(self, new: CompletionOutput, logprobs: ChatLogprobs | None) -> None:
        self.num_tokens += len(new.token_ids)
        self.num_reasoning_tokens = new.num_reasoning_tokens
        self._token_ids += new.token_ids
        if logprobs is not None:
            self._logprobs = (self._logprobs or []) + logprobs.content

    def deltas(self, new: CompletionOutput) -> list[Delta]:
        """What is new of its message."""
        if new.events is None:
            return [Delta(content=new.text)] if new.text else []
        return self._spoken.deltas(new.events)

    def take(self, with_ids: bool) -> tuple[ChatLogprobs | None, list[int] | UnsetType]:
        logprobs, self._logprobs = self._logprobs, None
        token_ids, self._token_ids = self._token_ids, []
        return (ChatLogprobs(logprobs) if logprobs else None), (token_ids if with_ids else UNSET)


def _entry(tokenizer: Tokenizer, token: int, entry: Any, by_id: bool) -> TokenLogprob:
    return TokenLogprob(serving.token_text(token, entry, by_id), floored(entry.logprob), list(tokenizer.token_bytes(token)))


def _num_reasoning(answers: Iterable[Any]) -> int | None:
    """Tokens of reasoning of several answers; None if the model does not think."""
    counts = [answer.num_reasoning_tokens for answer in answers if answer.num_reasoning_tokens is not None]
    return sum(counts) if counts else None
