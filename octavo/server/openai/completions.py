"""/v1/completions: text or tokens in, their continuation out, whole or in pieces."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from octavo import environment
from octavo.errors import RequestError
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.inputs import EncodedPrompt, Prompt
from octavo.frontend.stream import RequestStream
from octavo.protocol.outputs import CompletionOutput, LogprobsOnePosition, RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, SamplingParams
from octavo.server.body import read, schema
from octavo.server.openai import serving
from octavo.server.openai.form import form_field, read_form
from octavo.server.openai.protocol import CompletionRequest
from octavo.server.openai.reply import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    TimesOfRequest,
    Usage,
    floored,
    prompt_logprobs_of,
    usage_of,
)
from octavo.server.sse import event
from octavo.server.state import ServerState

router = APIRouter()
PROMPTS_AT_ONCE = 64  # prompts encoded before other tasks get their turn


@router.post("/v1/completions", response_model=None, openapi_extra=schema(CompletionRequest))
async def completions(request: Request) -> Response:
    """Continue one prompt or several."""
    return await answer_completion(request, await read(request, CompletionRequest))


async def answer_completion(request: Request, body: CompletionRequest) -> Response:
    """The continuations, whole or as a stream."""
    state: ServerState = request.app.state.server
    llm = state.engine()
    name = serving.model_name(state, body.model)
    job = Completions(state, llm, body, name, f"cmpl-{body.request_id or request.state.request_id}")
    await job.encode()
    streams, sources = await job.start()
    if body.stream:
        return serving.noted(serving.stream_of(job.events(sources), streams, state), body)
    return serving.noted(await serving.answer(request, job.whole(sources, streams)), body)


class Completions:
    """One completions request, of one prompt or several, and what is told of the answers."""

    def __init__(self, state: ServerState, llm: AsyncLLM, body: CompletionRequest, model: str, name: str) -> None:
        self.id = name
        self._state = state
        self._llm = llm
        self._body = body
        self._model = model
        self._created = int(time.time())
        self._by_id = serving.as_token_ids(body, state)
        self._prompts: list[EncodedPrompt] = []
        self._tells_usage, self._tells_usage_always = serving.usage_wishes(body, state)

    # --- requests

    async def encode(self) -> None:
        body, given = self._body, _prompts(self._body.prompt)
        limit = environment.max_num_sequences()
        if len(given) > 1 and len(given) * max(1, body.n) > limit:
            raise RequestError(f"{len(given)} prompts with n = {body.n} are more than {limit} answers", parameter="prompt")
        for number, each in enumerate(given):
            prompt = await self._llm.encode(each, body.add_special_tokens)
            prompt.cache_salt = body.cache_salt
            cut = self._llm.inputs.truncated(prompt, body.truncate_prompt_tokens, body.truncation_side, self._max_tokens)
            self._prompts.append(cut)
            if number % PROMPTS_AT_ONCE == PROMPTS_AT_ONCE - 1:
                await asyncio.sleep(0)

    @property
    def _max_tokens(self) -> int:
        """As capped by the model's generation config; 0 asks for the prompt alone: its text, or its log-probabilities."""
        asked = serving.cap_max_tokens(self._body.max_tokens, self._llm.config.model.default_sampling)
        return self._body.max_tokens if asked is None else asked

    async def start(self) -> tuple[list[RequestStream], list[AsyncIterator[RequestOutput]]]:
        """Hand the prompts to the engine; the streams to close, and what to read."""
        body = self._body
        if body.use_beam_search:
            beam = serving.beam_params(body, self._max_tokens)
            searches = [await self._llm.prepare_beam_search(p, beam, self.id, priority=body.priority) for p in self._prompts]
            self._log(beam)
            return [], [serving.single(search) for search in searches]
        params = self._params()
        if body.max_tokens == 0 and params.prompt_logprobs is None:
            if not body.echo:
                raise RequestError("max_tokens must be at least 1", "0 is for echo or prompt_logprobs", "max_tokens")
            for prompt in self._prompts:
                self._llm.inputs.check_prompt(prompt.token_ids, body.max_tokens)
            self._log(params)
            return [], [_prompt_alone(self.id, p, body.n) for p in self._prompts]
        streams: list[RequestStream] = []
        try:
            for prompt in self._prompts:
                with serving.as_written({"structured_outputs": form_field(body)}):
                    stream = await self._llm.add_request(self.id, prompt, params, priority=body.priority)
                streams.append(stream)
        except BaseException:
            for stream in streams:
                await stream.aclose()
            raise
        self._log(params)
        return streams, list(streams)

    def _log(self, params: SamplingParams | BeamSearchParams) -> None:
        for prompt in self._prompts:
            self._state.request_log.request(self.id, params, prompt)

    def _params(self) -> SamplingParams:
        body = self._body
        prompt_logprobs = body.prompt_logprobs
        if body.echo and body.logprobs is not None:
            prompt_logprobs = max(body.logprobs, prompt_logprobs or 0) if -1 not in (body.logprobs, prompt_logprobs) else -1
        is_echo_alone = body.max_tokens == 0 and prompt_logprobs is None  # nothing is computed, and the rest is checked all the same
        defaults = self._llm.config.model.default_sampling
        form = read_form(body.response_format, body.structured_outputs)
        return serving.sampling_params(body, defaults, 1 if is_echo_alone else self._max_tokens, body.logprobs, prompt_logprobs, form)

    # --- whole

    async def whole(self, sources: Sequence[AsyncIterator[RequestOutput]], streams: list[RequestStream]) -> Response:
        """All answers in one piece."""
        lasts: list[RequestOutput | None] = [None] * len(sources)
        try:
            async for number, output in serving.interleaved(sources):
                lasts[number] = output
        finally:
            for stream in streams:
                await stream.aclose()
        log = self._state.request_log.answers(self.id, is_streamed=False)
        choices: list[CompletionChoice] = []
        num_prompt = num_tokens = num_cached = 0
        for number, last in enumerate(lasts):
            assert last is not None
            log.add(last, number)
            num_prompt += len(last.prompt_token_ids or ())
            num_cached += last.num_cached_tokens or 0
            for each in last.outputs:
                choices.append(self._choice(number, last, each))
                num_tokens += len(each.token_ids)
        usage = self._usage(num_prompt, num_tokens, num_cached)
        reply = Completion(self.id, self._created, self._model, choices, self._state.fingerprint, usage=usage)
        reply.metrics = self._times(last, num_tokens)
        return Response(msgspec.json.encode(reply), media_type="application/json")

    def _choice(self, number: int, last: RequestOutput, output: CompletionOutput) -> CompletionChoice:
        body = self._body
        text, logprobs = "", _Legacy(self._by_id)
        if body.echo:
            text = self._prompt_text(number)
            if body.logprobs is not None:
                logprobs.add_prompt(self._pieces_of_prompt(number), last)
        text += output.text
        if body.logprobs is not None and output.logprobs is not None:
            logprobs.add(output.token_ids, output.logprobs, body.logprobs)
        return CompletionChoice(
            index=number * body.n + output.index,
            text=text,
            logprobs=None if body.logprobs is None else logprobs.take(),
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            prompt_logprobs=None if body.prompt_logprobs is None else prompt_logprobs_of(last),
            prompt_token_ids=last.prompt_token_ids if body.return_token_ids else None,
            token_ids=output.token_ids if body.return_token_ids else None,
        )

    # --- in pieces

    async def events(self, sources: Sequence[AsyncIterator[RequestOutput]]) -> AsyncGenerator[bytes, None]:
        """Each choice: its prompt if echoed, its text, a chunk with its finish_reason; then usage, if it was asked for."""
        body = self._body
        choices = [_Growing(self._by_id) for _ in range(len(sources) * body.n)]
        cached = [0] * len(sources)
        log = self._state.request_log.answers(self.id, is_streamed=True)
        last: RequestOutput | None = None
        async for number, output in serving.interleaved(sources):
            last = output
            log.add(output, number)
            cached[number] = output.num_cached_tokens or 0
            chunks: list[bytes] = []
            for each in output.outputs:
                chunks += self._pieces(number, output, each, choices[number * body.n + each.index])
            if chunks:
                yield b"".join(chunks)
        if self._tells_usage:
            num_prompt, num_tokens = sum(len(p.token_ids) for p in self._prompts), sum(c.num_tokens for c in choices)
            usage = self._usage(num_prompt, num_tokens, sum(cached))
            chunk = Completion(self.id, self._created, self._model, [], self._state.fingerprint, usage=usage)
            chunk.metrics = self._times(last, num_tokens)
            yield event(chunk)

    def _pieces(self, number: int, output: RequestOutput, new: CompletionOutput, choice: "_Growing") -> list[bytes]:
        body, index = self._body, number * self._body.n + new.index
        chunks = []
        choice.num_cached = output.num_cached_tokens or 0
        if body.echo and not choice.has_begun:
            if body.logprobs is not None:
                choice.logprobs.add_prompt(self._pieces_of_prompt(number), output)
            chunks.append(event(self._chunk(number, choice, self._piece(number, index, self._prompt_text(number), choice))))
        choice.add(new, body.logprobs)
        if new.text:
            chunks.append(event(self._chunk(number, choice, self._piece(number, index, new.text, choice))))
        if new.finish_reason is not None:
            piece = self._piece(number, index, "", choice)
            piece.finish_reason, piece.stop_reason = new.finish_reason, new.stop_reason
            chunk = self._chunk(number, choice, piece)
            if not self._tells_usage:
                chunk.metrics = self._times(output, choice.num_tokens)
            chunks.append(event(chunk))
        return chunks

    def _piece(self, number: int, index: int, text: str, choice: "_Growing") -> CompletionChoice:
        logprobs = None if self._body.logprobs is None else choice.logprobs.take()
        piece = CompletionChoice(index, text, logprobs)
        if self._body.return_token_ids:
            piece.token_ids = choice.take_ids()
            if not choice.has_begun:
                piece.prompt_token_ids = self._prompts[number].token_ids
        choice.has_begun = True
        return piece

    def _chunk(self, number: int, choice: "_Growing", piece: CompletionChoice) -> Completion:
        usage: Usage | UnsetType | None = UNSET
        if self._tells_usage:
            num_prompt = len(self._prompts[number].token_ids)
            usage = self._usage(num_prompt, choice.num_tokens, choice.num_cached) if self._tells_usage_always else None
        return Completion(self.id, self._created, self._model, [piece], self._state.fingerprint, usage=usage)

    # --- parts

    def _times(self, output: RequestOutput | None, num_tokens: int) -> TimesOfRequest | UnsetType:
        if output is None or self._body.n > 1:
            return UNSET
        return serving.metrics_of(output, len(self._prompts), num_tokens, self._state) or UNSET

    def _usage(self, num_prompt: int, num_tokens: int, num_cached: int) -> Usage:
        return usage_of(num_prompt, num_tokens, num_cached if self._state.options.enable_prompt_tokens_details else None)

    def _prompt_text(self, number: int) -> str:
        prompt = self._prompts[number]
        if prompt.text is not None:
            return prompt.text
        return str(self._llm.get_tokenizer().decode(prompt.token_ids, skip_special_tokens=False))

    def _pieces_of_prompt(self, number: int) -> str:
        """The text of the prompt's first token, which is none if the tokenizer put it there."""
        tokenizer = self._llm.get_tokenizer()
        first = self._prompts[number].token_ids[0]
        text = str(tokenizer.token_text(first))
        is_added = first == tokenizer.bos_token_id and not self._prompt_text(number).startswith(text)
        return "" if is_added else text


class _Legacy:
    """Log-probabilities in the shape of completions: parallel lists, the place of each token in the text."""

    def __init__(self, by_id: bool) -> None:
        self._by_id = by_id
        self._offset = 0
        self._made = CompletionLogprobs([], [], [], [])

    def add_prompt(self, first_text: str, output: RequestOutput) -> None:
        ids = output.prompt_token_ids or []
        self._append(f"token_id:{ids[0]}" if self._by_id else first_text, None, None, len(first_text))
        for token, position in zip(ids[1:], (output.prompt_logprobs or [])[1:], strict=False):
            if position is not None:
                self._add_position(token, position, -1)

    def add(self, token_ids: list[int], positions: list[LogprobsOnePosition], count: int) -> None:
        for token, position in zip(token_ids, positions, strict=False):
            self._add_position(token, position, count)

    def take(self) -> CompletionLogprobs:
        """What came since the last time."""
        made, self._made = self._made, CompletionLogprobs([], [], [], [])
        return made

    def _add_position(self, token: int, position: LogprobsOnePosition, count: int) -> None:
        own = position[token]
        tops: dict[str, float] = {}
        for other, entry in [(token, own), *((t, e) for t, e in serving.top_entries(position, count) if t != token)]:
            text = serving.token_text(other, entry, self._by_id)
            # different tokens may have one text: each keeps an entry of its own
            tops[f"token_id:{other}" if text in tops else text] = floored(entry.logprob)
        self._append(serving.token_text(token, own, self._by_id), floored(own.logprob), tops, len(own.decoded_token or ""))

    def _append(self, token: str, logprob: float | None, tops: dict[str, float] | None, length: int) -> None:
        self._made.text_offset.append(self._offset)
        self._made.tokens.append(token)
        self._made.token_logprobs.append(logprob)
        self._made.top_logprobs.append(tops)
        self._offset += length


class _Growing:
    """A choice that is streamed."""

    def __init__(self, by_id: bool) -> None:
        self.has_begun = False
        self.num_tokens = 0
        self.num_cached = 0
        self.logprobs = _Legacy(by_id)
        self._token_ids: list[int] = []

    def add(self, new: CompletionOutput, logprobs: int | None) -> None:
        self.num_tokens += len(new.token_ids)
        self._token_ids += new.token_ids
        if logprobs is not None and new.logprobs is not None:
            self.logprobs.add(new.token_ids, new.logprobs, logprobs)

    def take_ids(self) -> list[int]:
        token_ids, self._token_ids = self._token_ids, []
        return token_ids


def _prompts(value: Any) -> list[Prompt]:
    """One prompt or several, each text or token ids."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if set(map(type, value)) == {int}:
            return [value]
        if all(isinstance(v, str) for v in value) or all(isinstance(v, list) for v in value):
            if len(value) > (limit := environment.max_completion_prompts()):
                raise RequestError(f"prompt may hold at most {limit} prompts, not {len(value)}", "send several requests", "prompt")
            return list(value)
    raise RequestError("prompt must be text, token ids, or a non-empty list of either", parameter="prompt")


async def _prompt_alone(name: str, prompt: EncodedPrompt, n: int) -> AsyncGenerator[RequestOutput, None]:
    """The output of a request for which nothing is computed."""
    outputs = [CompletionOutput(index, "", [], finish_reason="length") for index in range(n)]
    yield RequestOutput(name, prompt.text, prompt.token_ids, None, outputs, finished=True)
