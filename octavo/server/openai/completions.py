"""/v1/completions: text or tokens in, their continuation out, whole or in pieces."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.inputs import EncodedPrompt, Prompt
from octavo.frontend.stream import RequestStream
from octavo.protocol.outputs import CompletionOutput, LogprobsOnePosition, RequestOutput
from octavo.protocol.sampling_params import SamplingParams
from octavo.server.body import read, schema
from octavo.server.openai import serving
from octavo.server.openai.protocol import CompletionRequest
from octavo.server.openai.reply import Completion, CompletionChoice, CompletionLogprobs, Usage, floored, prompt_logprobs_of, usage_of
from octavo.server.sse import EventStream, event
from octavo.server.state import ServerState

router = APIRouter()


@router.post("/v1/completions", response_model=None, openapi_extra=schema(CompletionRequest))
async def completions(request: Request) -> Response:
    """Continue one prompt or several."""
    state: ServerState = request.app.state.server
    body = await read(request, CompletionRequest)
    llm = state.engine()
    name = serving.model_name(state, body.model)
    job = Completions(state, llm, body, name, f"cmpl-{body.request_id or request.state.request_id}")
    await job.encode()
    streams, sources = await job.start()
    if body.stream:
        return EventStream(serving.guarded(job.events(sources)), streams)
    return await serving.answer(request, job.whole(sources, streams))


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

    # --- requests

    async def encode(self) -> None:
        self._prompts = [await self._llm.encode(each, self._body.add_special_tokens) for each in _prompts(self._body.prompt)]
        for prompt in self._prompts:
            prompt.cache_salt = self._body.cache_salt

    @property
    def _generates(self) -> bool:
        """max_tokens=0 asks for the prompt alone: its text, or its log-probabilities."""
        return self._body.max_tokens != 0

    async def start(self) -> tuple[list[RequestStream], list[AsyncIterator[RequestOutput]]]:
        """Hand the prompts to the engine; the streams to close, and what to read."""
        body = self._body
        if body.use_beam_search:
            beam = serving.beam_params(body, body.max_tokens)
            searches = [await self._llm.prepare_beam_search(p, beam, self.id, priority=body.priority) for p in self._prompts]
            return [], [serving.single(search) for search in searches]
        params = self._params()
        if params is None:
            return [], [_prompt_alone(self.id, p, body.n) for p in self._prompts]
        streams: list[RequestStream] = []
        try:
            for prompt in self._prompts:
                streams.append(await self._llm.add_request(self.id, prompt, params, priority=body.priority))
        except BaseException:
            for stream in streams:
                await stream.aclose()
            raise
        return streams, list(streams)

    def _params(self) -> SamplingParams | None:
        """None if nothing has to be computed."""
        body = self._body
        prompt_logprobs = body.prompt_logprobs
        if body.echo and body.logprobs is not None:
            prompt_logprobs = max(body.logprobs, prompt_logprobs or 0) if -1 not in (body.logprobs, prompt_logprobs) else -1
        if not self._generates and prompt_logprobs is None:
            if not body.echo:
                raise RequestError("max_tokens must be at least 1", "0 is for echo or prompt_logprobs", "max_tokens")
            return None
        defaults = self._llm.config.model.default_sampling
        return serving.sampling_params(body, defaults, body.max_tokens or 1, body.logprobs, prompt_logprobs)

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
        choices: list[CompletionChoice] = []
        num_prompt = num_tokens = num_cached = 0
        for number, last in enumerate(lasts):
            assert last is not None
            num_prompt += len(last.prompt_token_ids or ())
            num_cached += last.num_cached_tokens or 0
            for each in last.outputs:
                choices.append(self._choice(number, last, each))
                num_tokens += len(each.token_ids) if self._generates else 0
        reply = Completion(
            self.id, self._created, self._model, choices, self._state.fingerprint, usage=self._usage(num_prompt, num_tokens, num_cached)
        )
        return Response(msgspec.json.encode(reply), media_type="application/json")

    def _choice(self, number: int, last: RequestOutput, output: CompletionOutput) -> CompletionChoice:
        body = self._body
        text, logprobs = "", _Legacy(self._by_id)
        if body.echo:
            text = self._prompt_text(number)
            if body.logprobs is not None:
                logprobs.add_prompt(self._pieces_of_prompt(number), last)
        if self._generates:
            text += output.text
            if body.logprobs is not None and output.logprobs is not None:
                logprobs.add(output.token_ids, output.logprobs, body.logprobs)
        return CompletionChoice(
            index=number * body.n + output.index,
            text=text,
            logprobs=None if body.logprobs is None else logprobs.take(),
            finish_reason=output.finish_reason if self._generates else "length",
            stop_reason=output.stop_reason if self._generates else None,
            prompt_logprobs=None if body.prompt_logprobs is None else prompt_logprobs_of(last),
            prompt_token_ids=last.prompt_token_ids if body.return_token_ids else None,
            token_ids=None if not body.return_token_ids else output.token_ids if self._generates else [],
        )

    # --- in pieces

    async def events(self, sources: Sequence[AsyncIterator[RequestOutput]]) -> AsyncGenerator[bytes, None]:
        """Each choice: its prompt if echoed, its text, a chunk with its finish_reason; then usage, if it was asked for."""
        body = self._body
        choices = [_Growing(self._by_id) for _ in range(len(sources) * body.n)]
        cached = [0] * len(sources)
        async for number, output in serving.interleaved(sources):
            cached[number] = output.num_cached_tokens or 0
            chunks: list[bytes] = []
            for each in output.outputs:
                chunks += self._pieces(number, output, each, choices[number * body.n + each.index])
            if chunks:
                yield b"".join(chunks)
        if body.stream_options is not None and body.stream_options.include_usage:
            num_prompt = sum(len(p.token_ids) for p in self._prompts)
            usage = self._usage(num_prompt, sum(c.num_tokens for c in choices), sum(cached))
            yield event(Completion(self.id, self._created, self._model, [], self._state.fingerprint, usage=usage))

    def _pieces(self, number: int, output: RequestOutput, new: CompletionOutput, choice: "_Growing") -> list[bytes]:
        body, index = self._body, number * self._body.n + new.index
        chunks = []
        if not choice.has_begun:
            choice.has_begun = True
            if body.echo:
                chunks.append(self._echo(number, index, output, choice))
        if self._generates:
            choice.add(new, body.logprobs)
            if new.text:
                chunks.append(self._chunk(number, choice, self._piece(index, new.text, choice)))
        if new.finish_reason is not None:
            piece = self._piece(index, "", choice)
            piece.finish_reason = new.finish_reason if self._generates else "length"
            piece.stop_reason = new.stop_reason if self._generates else None
            chunks.append(self._chunk(number, choice, piece))
        return chunks

    def _echo(self, number: int, index: int, output: RequestOutput, choice: "_Growing") -> bytes:
        if self._body.logprobs is not None:
            choice.logprobs.add_prompt(self._pieces_of_prompt(number), output)
        piece = self._piece(index, self._prompt_text(number), choice)
        if self._body.return_token_ids:
            piece.prompt_token_ids = output.prompt_token_ids
        return self._chunk(number, choice, piece)

    def _piece(self, index: int, text: str, choice: "_Growing") -> CompletionChoice:
        logprobs = None if self._body.logprobs is None else choice.logprobs.take()
        return CompletionChoice(index, text, logprobs, token_ids=choice.take_ids() if self._body.return_token_ids else UNSET)

    def _chunk(self, number: int, choice: "_Growing", piece: CompletionChoice) -> bytes:
        options = self._body.stream_options
        usage: Usage | UnsetType | None = UNSET
        if options is not None and options.include_usage:
            usage = self._usage(len(self._prompts[number].token_ids), choice.num_tokens, 0) if options.continuous_usage_stats else None
        return event(Completion(self.id, self._created, self._model, [piece], self._state.fingerprint, usage=usage))

    # --- parts

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
        if all(isinstance(v, (str, list)) for v in value):
            return list(value)
    raise RequestError("prompt must be text, token ids, or a non-empty list of either", parameter="prompt")


async def _prompt_alone(name: str, prompt: EncodedPrompt, n: int) -> AsyncGenerator[RequestOutput, None]:
    """The output of a request for which nothing is computed."""
    outputs = [CompletionOutput(index, "", [], finish_reason="length") for index in range(n)]
    yield RequestOutput(name, prompt.text, prompt.token_ids, None, outputs, finished=True)
