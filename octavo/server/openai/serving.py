"""Serving: what chat and completions share: the model's name, parameters of the engine, logprobs, errors in a stream."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import Request
from starlette.responses import Response

from octavo import environment
from octavo.errors import RequestError
from octavo.frontend.stream import RequestStream
from octavo.logging import get_logger
from octavo.protocol.outputs import Logprob, LogprobsOnePosition, RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams, StructuredOutputsParams
from octavo.server.errors import CLIENT_LEFT, ErrorBody, UnknownModelError, info_of
from octavo.server.openai.protocol import Body, GenerationRequest, StreamOptions
from octavo.server.openai.reply import TimesOfRequest
from octavo.server.sse import DONE, EventStream, event, left
from octavo.server.state import ServerState, run_until

logger = get_logger(__name__)

IGNORED = "x-ignored-fields"
WARNINGS = "x-warnings"
MAX_NAMED = 20  # ignored fields that the header names
_PARAMETERS = frozenset(SamplingParams.__struct_fields__)
_NOT_FOR_BEAMS = (
    "stop",
    "stop_token_ids",
    "min_tokens",
    "logit_bias",
    "bad_words",
    "presence_penalty",
    "frequency_penalty",
    "repetition_detection",
    "prompt_logprobs",
    "logprob_token_ids",
    "response_format",
    "structured_outputs",
    "thinking_token_budget",
)
_HEADER_SAFE = re.compile(r"[\w.-]{1,64}", re.ASCII)


def model_name(state: ServerState, asked: str | None) -> str:
    """The name to answer with. Raises UnknownModelError."""
    names = state.model_names
    if asked is None or asked == "":
        return names[0]
    if asked not in names:
        if environment.skip_model_name_validation():
            return names[0]
        raise UnknownModelError(f"The model `{asked}` does not exist.", f"this server has {', '.join(names)}")
    return asked


def cap_max_tokens(asked: int | None, defaults: dict[str, Any]) -> int | None:
    """max_tokens as asked for, and no more than the max_new_tokens of the model's generation config."""
    return min((n for n in (asked, defaults.get("max_tokens")) if n is not None), default=None)


def sampling_params(
    request: GenerationRequest,
    defaults: dict[str, Any],
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
    form: StructuredOutputsParams | None,
) -> SamplingParams:
    """The engine's parameters. What a request leaves open comes from the model's generation config, then from SamplingParams.

    form: what the answer must look like.
    """
    limit = environment.max_stop_strings()
    if isinstance(request.stop, list) and len(request.stop) > limit:
        raise RequestError(f"stop may hold at most {limit} strings, not {len(request.stop)}", parameter="stop")
    chosen = {name: value for name, value in defaults.items() if name != "max_tokens"}
    # a field of the same name is the same parameter, so that a new one needs no line here
    chosen |= {name: getattr(request, name) for name in request.model_fields_set & _PARAMETERS}
    if request.repetition_detection is not None:
        chosen["repetition_detection"] = request.repetition_detection.parameters()
    chosen |= {"max_tokens": max_tokens, "logprobs": logprobs, "prompt_logprobs": prompt_logprobs, "structured_outputs": form}
    chosen["output_kind"] = RequestOutputKind.DELTA if request.stream else RequestOutputKind.FINAL_ONLY
    return SamplingParams(**chosen)


@contextmanager
def as_written(names: Mapping[str, str]) -> Iterator[None]:
    """What is wrong is named as this endpoint's clients write it. names: parameter of the engine -> the field that it comes from."""
    try:
        yield
    except RequestError as error:
        if (name := names.get(error.parameter or "")) in (None, error.parameter):
            raise
        # a grammar's part is named after the parameter, and says nothing to who wrote no grammar
        fact = re.sub(rf"^{error.parameter}(\.\w+)?:", f"{name}:", error.fact)
        raise RequestError(fact, error.hint, name) from None


def beam_params(request: GenerationRequest, max_tokens: int) -> BeamSearchParams:
    """Parameters of use_beam_search: n is the width. Raises RequestError for a field that would change what a beam search finds."""
    if max_tokens < 1:
        raise RequestError(f"max_tokens must be at least 1, not {max_tokens}", parameter="max_tokens")
    if not 1 <= request.n <= environment.max_num_sequences():
        raise RequestError(f"n must be between 1 and {environment.max_num_sequences()}, not {request.n}", parameter="n")
    for name in _NOT_FOR_BEAMS:
        if getattr(request, name):
            raise RequestError(f"a beam search takes no {name}", f"leave {name} or use_beam_search away", name)
    return BeamSearchParams(
        beam_width=request.n,
        max_tokens=max_tokens,
        ignore_eos=request.ignore_eos,
        temperature=request.temperature or 0.0,
        length_penalty=request.length_penalty,
        include_stop_str_in_output=request.include_stop_str_in_output,
        skip_special_tokens=request.skip_special_tokens,
        allowed_token_ids=request.allowed_token_ids,
    )


def noted(response: Response, body: Body) -> Response:
    """The answer with headers that name what of the request nothing read, and what else is to be said of it."""
    if body.warnings:
        response.headers[WARNINGS] = "; ".join(body.warnings)
    if names := body.ignored:
        logger.debug("ignored fields of a request: %s", names)
        shown = [name for name in names if _HEADER_SAFE.fullmatch(name)][:MAX_NAMED]
        response.headers[IGNORED] = ", ".join(shown + (["..."] if len(shown) < len(names) else []))
    return response


def usage_wishes(request: GenerationRequest, state: ServerState) -> tuple[bool, bool]:
    """Whether a stream ends with its usage, and whether every chunk has it too."""
    options = request.stream_options or StreamOptions()
    is_told = options.include_usage or state.options.enable_force_include_usage
    return is_told, is_told and options.continuous_usage_stats


def stream_of(events: AsyncGenerator[bytes, None], streams: Sequence[RequestStream], state: ServerState) -> EventStream:
    """The answer that is a stream of events."""
    return EventStream(guarded(events), streams, state.options.sse_keep_alive_interval)


def metrics_of(output: RequestOutput, num_prompts: int, num_tokens: int, state: ServerState) -> TimesOfRequest | None:
    """What --enable-per-request-metrics tells. Of several answers none is told: their times cannot be told apart."""
    times = output.metrics
    if not state.options.enable_per_request_metrics or times is None or num_prompts > 1 or len(output.outputs) > 1:
        return None
    first, last = times.first_token_time, times.last_token_time
    generation_s = last - first if first is not None and last is not None and last > first else None
    queue_s = None if times.scheduled_time is None or times.queued_time is None else times.scheduled_time - times.queued_time
    return TimesOfRequest(
        time_to_first_token_ms=None if first is None else 1000 * (first - times.arrival_time),
        generation_time_ms=None if generation_s is None else 1000 * generation_s,
        queue_time_ms=None if queue_s is None else 1000 * queue_s,
        mean_itl_ms=None if generation_s is None or num_tokens < 2 else 1000 * generation_s / (num_tokens - 1),
        tokens_per_second=None if generation_s is None else num_tokens / generation_s,
    )


def as_token_ids(request: GenerationRequest, state: ServerState) -> bool:
    """Whether log-probabilities name tokens as token_id:N."""
    asked = request.return_tokens_as_token_ids
    return state.options.return_tokens_as_token_ids if asked is None else asked


def cached_tokens(output: RequestOutput, state: ServerState) -> int | None:
    return (output.num_cached_tokens or 0) if state.options.enable_prompt_tokens_details else None


def token_text(token: int, entry: Logprob, by_id: bool) -> str:
    return f"token_id:{token}" if by_id or entry.decoded_token is None else entry.decoded_token


def top_entries(position: LogprobsOnePosition, count: int) -> list[tuple[int, Logprob]]:
    """The `count` most likely entries, best first; -1 = all; what was asked for by id has no rank and is told after them."""
    ranked = [item for item in position.items() if item[1].rank is not None]
    ranked.sort(key=lambda item: item[1].rank or 0)
    by_id = [item for item in position.items() if item[1].rank is None]
    return (ranked if count == -1 else ranked[:count]) + by_id


async def finish(stream: RequestStream) -> RequestOutput:
    """The last output of a stream; leaving early ends the request."""
    last: RequestOutput | None = None
    try:
        async for output in stream:
            last = output
    finally:
        await stream.aclose()
    assert last is not None
    return last


async def answer(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """The answer of `work`, which is ended when the client leaves."""
    working: asyncio.Task[Any] = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(left(request.receive))
    try:
        if await run_until(leaving, working):
            return working.result()  # type: ignore[no-any-return]
        return Response(status_code=CLIENT_LEFT)
    finally:
        leaving.cancel()
        working.cancel()


async def guarded(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The events, and [DONE] at the end; an error becomes an event, since the status was sent long ago."""
    try:
        async for data in events:
            yield data
    except Exception as error:
        info = info_of(error)
        if info.code == 500:
            logger.error("a stream failed: %r", error)
        yield event(ErrorBody(info))
    finally:
        await events.aclose()
    yield DONE


async def interleaved(sources: Sequence[AsyncIterator[RequestOutput]]) -> AsyncGenerator[tuple[int, RequestOutput], None]:
    """The outputs of several sources, with the source's number, as they come. The first error ends all."""
    queue: asyncio.Queue[tuple[int, RequestOutput | Exception | None]] = asyncio.Queue(maxsize=1)

    async def forward(number: int) -> None:
        try:
            async for output in sources[number]:
                await queue.put((number, output))
        except Exception as error:
            await queue.put((number, error))
        else:
            await queue.put((number, None))

    tasks = [asyncio.ensure_future(forward(number)) for number in range(len(sources))]
    try:
        num_open = len(sources)
        while num_open:
            number, item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield number, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def single(begin: Callable[[], Awaitable[RequestOutput]]) -> AsyncGenerator[RequestOutput, None]:
    """A source of one output, for what cannot be streamed. It begins when it is first read, if ever."""
    yield await begin()
