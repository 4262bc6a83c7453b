"""AsyncLLM: many requests at once from one event loop, each answered as a stream."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn

import msgspec

from octavo import environment
from octavo.config.config import Config
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.engine.client import AsyncEngineClient
from octavo.errors import EngineDeadError, OctavoError, OverloadedError, RequestError
from octavo.frontend import formats, tracing
from octavo.frontend.beam_search import BeamSearch, as_request_output
from octavo.frontend.inputs import EncodedPrompt, InputProcessor, PreparedRequest, Prompt, render_chat, too_long
from octavo.frontend.metrics import Metrics
from octavo.frontend.outputs import OutputProcessor, Sink
from octavo.frontend.reading import Reader, take_apart
from octavo.frontend.reasoning import markers_of
from octavo.frontend.stream import RequestStream
from octavo.frontend.throughput import Throughput
from octavo.frontend.tracing import RequestTrace, Tracer
from octavo.logging import get_logger
from octavo.protocol.messages import EngineFacts
from octavo.protocol.outputs import LogprobsOnePosition, RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, SamplingParams
from octavo.text.tokenizer import Tokenizer

logger = get_logger(__name__)

LONG_TEXT = 16_384  # characters; a longer prompt is encoded on a thread


class AsyncLLM:
    """An engine for one event loop. `await start()` first, or let the first request do it."""

    def __init__(self, config: Config, client: AsyncEngineClient | None = None, tokenizer: Tokenizer | None = None) -> None:
        self.config = config
        self.facts: EngineFacts
        self.inputs: InputProcessor
        self.metrics: Metrics | None = None
        self.tokenizer = tokenizer
        self.dead = asyncio.Event()  # set when the engine has died
        self.dead_error: OctavoError | None = None
        self.reasoning_format: str | None = None  # how the model writes reasoning; None: it writes none that is told apart
        self._client = client
        self._outputs: OutputProcessor
        self._tracer: Tracer | None = None
        self._starting: asyncio.Task[EngineFacts] | None = None
        self._tasks: set[asyncio.Future[Any]] = set()  # until the end
        self._aborts: set[asyncio.Future[Any]] = set()  # on their way to the engine
        self._threads = ThreadPoolExecutor(config.renderer_threads, thread_name_prefix="octavo-encode")
        self._idle = asyncio.Event()
        self._idle.set()
        self._num_waiting = 0
        self._names = itertools.count()
        self._is_shut_down = False

    # --- life

    @classmethod
    def from_options(cls, options: Options) -> "AsyncLLM":
        """An engine that is not started yet. Raises ConfigError or ModelNotFoundError."""
        return cls(resolve(options, "server"))

    @classmethod
    def from_config(cls, config: Config) -> "AsyncLLM":
        return cls(config)

    from_engine_args = from_options
    from_vllm_config = from_config

    async def start(self) -> EngineFacts:
        """Load the model. Raises the OctavoError that the engine met. Later calls wait for the first."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> EngineFacts:
        model = self.config.model
        if self.tokenizer is None and not model.skip_tokenizer_init:
            self.tokenizer = await self._in_thread(Tokenizer.load, model.tokenizer_path, model.renderer)
        if self.tokenizer is not None and model.chat_template is not None:
            self.tokenizer.chat_template, self.tokenizer.renderer = model.chat_template, None
        if self.tokenizer is not None:
            model = model.with_tokens_of(len(self.tokenizer))
            self.config = msgspec.structs.replace(self.config, model=model)
        formats.check("reasoning", self.config.reasoning_parser, self.config.reasoning_parser_plugin)
        self.reasoning_format = formats.settle("reasoning", self.config.reasoning_parser, model, self.tokenizer)
        if self._client is None:
            self._client = AsyncEngineClient()
        facts = await self._client.start(self.config)
        self.facts = facts
        self.inputs = InputProcessor(model, self.config.scheduler, self.tokenizer, facts.max_model_len, self.config.grammar)
        self.inputs.reasoning = markers_of(self.reasoning_format)
        self.inputs.has_typed_reasoning = self.config.reasoning_parser not in (None, "auto")
        self.metrics = Metrics(self.config, facts) if self.config.log_stats else None
        shared_prefix = facts.block_size if self.config.cache.prefix_caching else None
        if self.config.observability.traces_endpoint is not None:
            self._tracer = await self._in_thread(Tracer, self.config.observability)
        interval, name = self.config.scheduler.stream_interval, model.served_names[0]
        self._outputs = OutputProcessor(self.tokenizer, interval, self.metrics, shared_prefix, self._tracer, name)
        self._keep(asyncio.ensure_future(self._read_outputs()), self._tasks)
        return facts

    async def shutdown(self) -> None:
        """End the engine; open streams get an error. Can be called twice."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        self.abort_all(EngineDeadError("the engine has been shut down"))
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._aborts, return_exceptions=True)
        if self._client is not None:
            await self._client.shutdown()
        if self._tracer is not None:
            await self._in_thread(self._tracer.shutdown)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> "AsyncLLM":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    # --- requests

    async def generate(
        self,
        prompt: Prompt | EncodedPrompt,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        trace_headers: dict[str, str] | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of one request, as params.output_kind asks. Leaving the loop early ends the request.

        Raises RequestError for a wrong request, OverloadedError when the queue is full, GenerationError if the engine fails on this
        request and EngineDeadError if it is no more.
        """
        stream = await self.add_request(request_id, prompt, sampling_params, priority=priority, trace_headers=trace_headers)
        try:
            async for output in stream:
                yield output
        finally:
            await stream.aclose()

    async def add_request(
        self,
        request_id: str,
        prompt: Prompt | EncodedPrompt,
        params: SamplingParams,
        *,
        priority: int = 0,
        trace_headers: dict[str, str] | None = None,
        add_special_tokens: bool = True,
        is_internal: bool = False,
        num_given: int = 0,
        reader: Reader | None = None,
    ) -> RequestStream:
        """Check a request and hand it to the engine; its outputs come from the stream. Raises as generate() does.

        reader: takes the answers apart into reasoning, content and calls; None: they are text.
        """
        await self._ready()
        self.check_admission(params.n)
        encoded = prompt if isinstance(prompt, EncodedPrompt) else await self.encode(prompt, add_special_tokens)
        self.check_admission(params.n, len(encoded.token_ids))
        if params.structured_outputs is not None:
            await self._in_thread(self.inputs.check_grammar, params.structured_outputs)
        request = self.inputs.prepare(
            request_id,
            encoded,
            params,
            priority=priority,
            trace_headers=tracing.incoming.get() if trace_headers is None else trace_headers,
            is_internal=is_internal,
            num_given=num_given,
            reader=reader,
        )
        stream = RequestStream(params.output_kind, lambda: self._drop(request))
        await self._enter(request, stream)
        return stream

    async def encode(self, prompt: Prompt, add_special_tokens: bool = True) -> EncodedPrompt:
        """A prompt as token ids; long ones are encoded, or their ids looked at, on a thread."""
        await self._ready()
        parts = (prompt.get("prompt"), prompt.get("prompt_token_ids")) if isinstance(prompt, dict) else (prompt,)
        if all(len(part) <= LONG_TEXT for part in parts if isinstance(part, (str, list))):
            return self.inputs.encode(prompt, add_special_tokens)
        encoded: EncodedPrompt = await self._in_thread(self.inputs.encode, prompt, add_special_tokens)
        return encoded

    async def encode_chat(self, messages: list[dict[str, Any]], **arguments: Any) -> EncodedPrompt:
        """A conversation as the prompt that the chat template makes of it; arguments as of Tokenizer.render_chat."""
        await self._ready()
        if self.tokenizer is None:
            raise RequestError("chat needs a tokenizer, and this engine has none", "leave --skip-tokenizer-init away", "messages")
        work = partial(render_chat, self.tokenizer, self.config.model, messages, **arguments)
        size = sum(len(str(m.get("content", ""))) for m in messages if isinstance(m, dict))
        is_ours = arguments.get("chat_template") is None and not arguments.get("variables")  # else it may run for as long as it is let
        return work() if is_ours and size <= LONG_TEXT else await self._in_thread(work)

    async def decode(self, token_ids: list[int]) -> str:
        """The text of token ids, special tokens included. Raises RequestError for an id outside the vocabulary."""
        await self._ready()
        text: str = await self._in_thread(self.inputs.decode, token_ids)
        return text

    async def beam_search(
        self, prompt: Prompt | EncodedPrompt, params: BeamSearchParams, request_id: str, *, priority: int = 0
    ) -> RequestOutput:
        """The best params.beam_width sequences, as the outputs of one request. Raises as generate() does."""
        return await (await self.prepare_beam_search(prompt, params, request_id, priority=priority))()

    async def prepare_beam_search(
        self,
        prompt: Prompt | EncodedPrompt,
        params: BeamSearchParams,
        request_id: str,
        *,
        priority: int = 0,
        reader: Reader | None = None,
    ) -> Callable[[], Coroutine[Any, Any, RequestOutput]]:
        """Check a beam search as add_request() checks a request; nothing is computed before what is returned is called."""
        await self._ready()
        self.check_admission()
        encoded = prompt if isinstance(prompt, EncodedPrompt) else await self.encode(prompt)
        self.check_admission(params.beam_width, len(encoded.token_ids))
        room = self.facts.max_model_len - len(encoded.token_ids)
        if room < 1:
            raise too_long(self.facts.max_model_len, len(encoded.token_ids))
        search = BeamSearch(encoded.token_ids, params, self.config.model.eos_token_ids, min(params.max_tokens, room))
        sampling = search.sampling_params(self.config.model.sampled_ids)
        self.inputs.prepare(request_id, encoded, sampling, priority=priority, is_internal=True)  # what is wrong with the first round
        return partial(self._search, search, encoded, sampling, request_id, priority, reader)

    async def _search(
        self,
        search: BeamSearch,
        encoded: EncodedPrompt,
        sampling: SamplingParams,
        request_id: str,
        priority: int,
        reader: Reader | None,
    ) -> RequestOutput:
        trace = RequestTrace(
            request_id=request_id,
            model=self.config.model.served_names[0],
            params=search.params,
            headers=tracing.incoming.get(),
            arrival_s=time.monotonic(),
            num_prompt=len(encoded.token_ids),
        )
        try:
            while not search.is_done:
                num_given = search.num_generated
                rounds = [
                    self._next_logprobs(request_id, EncodedPrompt(tokens, None, encoded.cache_salt), sampling, priority, num_given)
                    for tokens in search.running()
                ]
                search.advance(await _all_of(rounds))
            output = as_request_output(request_id, encoded.text, encoded.token_ids, search.result(self.tokenizer), self.tokenizer)
            if reader is not None and self.tokenizer is not None:
                for each in output.outputs:
                    take_apart(each, self.tokenizer, sampling, encoded.token_ids, reader)
            trace.num_sequences = len(output.outputs)
            trace.num_generated = sum(len(each.token_ids) for each in output.outputs)
            trace.finish_reasons = [each.finish_reason or "" for each in output.outputs]
        except Exception as error:
            trace.error = str(error)
            raise
        finally:
            if self._tracer is not None:
                self._tracer.record(trace)
        return output

    async def _next_logprobs(
        self, request_id: str, prompt: EncodedPrompt, sampling: SamplingParams, priority: int, num_given: int
    ) -> LogprobsOnePosition:
        stream = await self.add_request(request_id, prompt, sampling, priority=priority, is_internal=True, num_given=num_given)
        try:
            output = await anext(stream)
        finally:
            await stream.aclose()
        logprobs = output.outputs[0].logprobs
        assert logprobs is not None
        return logprobs[0]

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """End requests by their ids: their streams get a last output with finish_reason abort."""
        names = [request_id] if isinstance(request_id, str) else list(request_id)
        self._tell_aborts(self._outputs.abort(names))
        self._note_idle()

    def abort_all(self, error: Exception) -> None:
        """End every request: their streams raise `error` after what they already hold."""
        if hasattr(self, "_outputs"):
            self._tell_aborts(self._outputs.fail_all(error))
            self._note_idle()

    def check_admission(self, n: int = 1, num_tokens: int = 0) -> None:
        """Raise OverloadedError if the queue has no room for n more sequences of a prompt of num_tokens.

        While no prompt waits any one is let in, or one longer than --max-num-queued-tokens could never be answered.
        """
        scheduler = self.config.scheduler
        if (limit := scheduler.max_num_queued_requests) is not None:
            queued = max(self._num_waiting, self._outputs.num_unfinished - scheduler.max_num_seqs)
            free_places = max(0, scheduler.max_num_seqs - self._outputs.num_unfinished)
            if max(0, queued) + max(0, n - free_places) > limit:
                self._reject("max_num_queued_reqs", f"{queued} requests wait already, and the queue holds {limit}")
        if (limit := scheduler.max_num_queued_tokens) is not None:
            tokens = self._outputs.num_queued_tokens
            if tokens and tokens + n * num_tokens > limit:
                self._reject("max_num_queued_tokens", f"{tokens} prompt tokens wait already, and the queue holds {limit}")

    def _reject(self, reason: str, fact: str) -> NoReturn:
        if self.metrics is not None:
            self.metrics.record_rejection(reason)
        raise OverloadedError(fact, "try again later")

    # --- questions

    @property
    def num_unfinished(self) -> int:
        """Sequences in flight."""
        return self._outputs.num_unfinished if hasattr(self, "_outputs") else 0

    def get_num_unfinished_requests(self) -> int:
        return self.num_unfinished

    async def wait_for_requests_to_drain(self, drain_timeout: float = 300.0) -> bool:
        """Wait until nothing is in flight; False if the time was over first."""
        try:
            await asyncio.wait_for(self._idle.wait(), drain_timeout)
        except TimeoutError:
            return False
        return True

    @property
    def errored(self) -> bool:
        return self.dead_error is not None

    @property
    def is_running(self) -> bool:
        return self._starting is not None and self._starting.done() and not self.errored and not self._is_shut_down

    async def check_health(self) -> None:
        """Raise EngineDeadError if the engine is no more."""
        if self.dead_error is not None:
            raise self.dead_error

    def get_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise RequestError("this engine has no tokenizer", "leave --skip-tokenizer-init away")
        return self.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's generation config recommends, over the defaults."""
        return SamplingParams(**self.config.model.default_sampling)

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes. False if some are in use."""
        await self._ready()
        assert self._client is not None
        return bool(await self._client.call("reset_prefix_cache"))

    # --- inside

    async def _ready(self) -> None:
        if self.dead_error is not None:
            raise self.dead_error
        if self._is_shut_down:
            raise EngineDeadError("the engine has been shut down")
        if self._starting is None or not self._starting.done() or self._starting.exception() is not None:
            await self.start()

    async def _enter(self, request: PreparedRequest, sink: Sink) -> None:
        assert self._client is not None
        self._idle.clear()
        try:
            for child in self._outputs.add(request, sink):
                await _settled(self._client.add(child))
        except BaseException:
            self._drop(request)
            raise

    def _drop(self, request: PreparedRequest) -> None:
        self._tell_aborts(self._outputs.drop(request))
        self._note_idle()

    def _tell_aborts(self, engine_ids: list[str]) -> None:
        if engine_ids and self._client is not None and self.dead_error is None:
            self._keep(asyncio.ensure_future(_settled(self._client.abort(engine_ids))), self._aborts)

    def _note_idle(self) -> None:
        if self._outputs.num_unfinished == 0:
            self._idle.set()

    async def _read_outputs(self) -> None:
        """Until the engine ends: its outputs to the streams, its figures to the metrics."""
        assert self._client is not None
        throughput, at_once = Throughput(), environment.outputs_at_once()
        if self.config.log_stats:
            self._keep(asyncio.ensure_future(self._log_throughput(throughput)), self._tasks)
        try:
            while True:
                batch = await self._client.outputs()
                if batch.stats is not None:
                    self._num_waiting = batch.stats.num_waiting
                    throughput.add(batch.stats)
                    if self.metrics is not None:
                        self.metrics.record_engine(batch.stats)
                for start in range(0, len(batch.outputs), at_once):
                    todo = self._outputs.process(batch.outputs[start : start + at_once], batch.time_s)
                    for request in todo.requests:
                        await _settled(self._client.add(request))
                    self._tell_aborts(todo.aborts)
                    if start + at_once < len(batch.outputs):
                        await asyncio.sleep(0)
                self._note_idle()
        except OctavoError as error:
            self._die(error)
        except Exception as error:
            logger.exception("the task that reads the engine's outputs failed")
            self._die(EngineDeadError(f"outputs could not be read: {error!r}"))

    def _die(self, error: OctavoError) -> None:
        if self._is_shut_down:
            return
        self.dead_error = error if isinstance(error, EngineDeadError) else EngineDeadError(error.fact, error.hint)
        logger.error("the engine died: %s", error.fact)
        self._outputs.fail_all(self.dead_error)
        if self.metrics is not None:
            self.metrics.record_engine_death()
        self._idle.set()
        self.dead.set()

    async def _log_throughput(self, throughput: Throughput) -> None:
        interval = environment.log_stats_interval_s()
        while True:
            await asyncio.sleep(interval)
            if self.dead_error is not None:
                throughput.end()
            line, is_busy = throughput.line(self.facts.device, self._outputs.num_deferred)
            (logger.info if is_busy else logger.debug)(line)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _keep(self, task: asyncio.Future[Any], where: set[asyncio.Future[Any]]) -> None:
        """Hold a task until it is done, and let nothing it raises go unseen."""
        where.add(task)

        def let_go(done: asyncio.Future[Any]) -> None:
            where.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, EngineDeadError):
                logger.error("a task of the engine's front end failed: %r", error)

        task.add_done_callback(let_go)


async def _all_of(work: list[Coroutine[Any, Any, LogprobsOnePosition]]) -> list[LogprobsOnePosition]:
    """All results in order; when one fails, the others are ended."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _settled(result: Awaitable[None] | None) -> None:
    if result is not None:
        await result


AsyncLLMEngine = AsyncLLM
