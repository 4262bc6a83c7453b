"""LLM: generate and chat from a script; blocks until every prompt is answered."""

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from octavo.config.config import Config
from octavo.config.options import Options, from_keywords
from octavo.config.resolve import resolve
from octavo.engine.client import EngineClient
from octavo.engine.connection import launch_early
from octavo.errors import ConfigError, OctavoError, RequestError
from octavo.frontend import formats
from octavo.frontend.beam_search import BeamSearch
from octavo.frontend.inputs import (
    EncodedPrompt,
    InputProcessor,
    PreparedRequest,
    Prompt,
    as_list,
    per_prompt,
    render_chat,
    too_long,
    unavailable,
)
from octavo.frontend.messages import read_messages
from octavo.frontend.metrics import Metric, Metrics
from octavo.frontend.outputs import OutputProcessor
from octavo.frontend.progress import Progress
from octavo.frontend.reasoning import markers_of
from octavo.frontend.tracing import Tracer
from octavo.logging import get_logger
from octavo.protocol.messages import EngineFacts, EngineOutputs
from octavo.protocol.outputs import BeamSearchOutput, LogprobsOnePosition, RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams
from octavo.text.tokenizer import Tokenizer

logger = get_logger(__name__)

Messages = list[dict[str, Any]]
Params = SamplingParams | Sequence[SamplingParams] | None


class _Answer:
    """The sink of one request: its last output."""

    def __init__(self, on_finished: Callable[[RequestOutput], None]) -> None:
        self.output: RequestOutput | None = None
        self._on_finished = on_finished

    def put(self, output: RequestOutput) -> None:
        self.output = output
        if output.finished:
            self._on_finished(output)

    def fail(self, error: Exception) -> None:
        raise error


class LLM:
    """A model in memory. `with LLM(...) as llm:` or `llm.close()` frees it; the end of the program does too."""

    def __init__(self, model: str, **options: Any) -> None:
        """Load a model. Keywords are the engine options. Raises ConfigError, ModelNotFoundError, MemoryPlanError ..., with a remedy."""
        self._launch(from_keywords({"model": model, **options}))

    @classmethod
    def from_options(cls, options: Options) -> "LLM":
        """An LLM from all options in one object."""
        self = cls.__new__(cls)
        self._launch(options)
        return self

    from_engine_args = from_options

    @classmethod
    def from_config(cls, config: Config, client: EngineClient | None = None, tokenizer: Tokenizer | None = None) -> "LLM":
        """An LLM from a resolved configuration."""
        self = cls.__new__(cls)
        self._begin(config, client or EngineClient(), tokenizer)
        return self

    def _launch(self, options: Options) -> None:
        launched = launch_early(options)  # while the model's files are looked at, processes load their libraries
        try:
            self._begin(resolve(options, "llm"), EngineClient(launched), None)
        except BaseException:
            if launched is not None:
                launched.close()
            raise

    def _begin(self, config: Config, client: EngineClient, tokenizer: Tokenizer | None) -> None:
        if tokenizer is None and not config.model.skip_tokenizer_init:
            tokenizer = Tokenizer.load(config.model.tokenizer_path, config.model.renderer)
        if tokenizer is not None and config.model.chat_template is not None:
            tokenizer.chat_template, tokenizer.renderer = config.model.chat_template, None
        if tokenizer is not None:
            config = msgspec.structs.replace(config, model=config.model.with_tokens_of(len(tokenizer)))
        self.config = config
        self._tokenizer = tokenizer
        self._client = client
        self.facts: EngineFacts = client.start(config)
        tracer = None if config.observability.traces_endpoint is None else Tracer(config.observability)
        self._finalizer = weakref.finalize(self, _end, client, tracer)  # runs at exit too
        self._inputs = InputProcessor(config.model, config.scheduler, tokenizer, self.facts.max_model_len, config.grammar)
        formats.check("reasoning", config.reasoning_parser, config.reasoning_parser_plugin)
        self._reasoning_format = formats.settle("reasoning", config.reasoning_parser, config.model, tokenizer)
        self._inputs.reasoning = markers_of(self._reasoning_format)
        self._inputs.has_typed_reasoning = config.reasoning_parser not in (None, "auto")
        self._metrics = Metrics(config, self.facts) if config.log_stats else None
        shared_prefix = self.facts.block_size if config.cache.prefix_caching else None
        interval, name = config.scheduler.stream_interval, config.model.served_names[0]
        self._outputs = OutputProcessor(tokenizer, interval, self._metrics, shared_prefix, tracer, name)
        self._names = itertools.count()
        self._enqueued: list[_Answer] = []
        self._progress: Progress | None = None

    # --- answers

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: int | Sequence[int] | None = None,
        lora_request: Any = None,
        add_special_tokens: bool = True,
    ) -> list[RequestOutput]:
        """Answers in the order of the prompts. No chat template is applied.

        sampling_params: one for all, or one for each; None takes the model's recommendation (get_default_sampling_params).
        Raises RequestError for a prompt or a parameter that is wrong, before any prompt is computed. A request on which the engine failed
        has `error` set and finish_reason "error".
        """
        encoded = [self._inputs.encode(p, add_special_tokens) for p in as_list(prompts)]
        return self._run(encoded, sampling_params, priority, lora_request, use_tqdm)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: Params = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: Any = None,
        priority: int | Sequence[int] | None = None,
        chat_template: str | None = None,
        chat_template_content_format: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answers to one conversation, or to several, in order; each is made a prompt by the chat template."""
        encoded = [
            render_chat(
                self.get_tokenizer(),
                self.config.model,
                each,
                chat_template=chat_template,
                content_format=chat_template_content_format,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tools=tools,
                variables=chat_template_kwargs,
            )
            for each in _conversations(messages)
        ]
        return self._run(encoded, sampling_params, priority, lora_request, use_tqdm)

    def read(
        self,
        output: RequestOutput,
        sampling_params: SamplingParams | None = None,
        *,
        tools: list[dict[str, Any]] | None = None,
        tool_call_parser: str | None = None,
    ) -> list[dict[str, Any]]:
        """An answer of chat() as messages with content, reasoning and tool_calls, as the server gives them; one for each of its outputs.

        sampling_params, tools: those of the chat. tool_call_parser: a format's name; None finds the model's. Raises ConfigError for a name
        that is none.
        """
        tokenizer, model = self.get_tokenizer(), self.config.model
        tool_format = formats.settle("tools", tool_call_parser, model, tokenizer) if tools else None
        params = sampling_params or self.get_default_sampling_params()
        return read_messages(output, tokenizer, params, tools, tool_format, self._reasoning_format)

    def enqueue(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        lora_request: Any = None,
        priority: int | Sequence[int] | None = None,
    ) -> list[str]:
        """Start on prompts without waiting; their ids. wait_for_completion gives the answers."""
        encoded = [self._inputs.encode(p) for p in as_list(prompts)]
        requests = self._prepare(encoded, sampling_params, priority, lora_request)
        self._enqueued += self._send(requests)
        return [r.request_id for r in requests]

    def wait_for_completion(self, *, use_tqdm: bool | Callable[..., Any] = True) -> list[RequestOutput]:
        """The answers of all that was enqueued, in order."""
        answers, self._enqueued = self._enqueued, []
        return self._wait(answers, use_tqdm)

    def beam_search(
        self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams, lora_request: Any = None, use_tqdm: bool = False
    ) -> list[BeamSearchOutput]:
        """The params.beam_width most probable continuations of each prompt, best first."""
        _refuse_adapters(lora_request)
        searches = []
        for prompt in as_list(prompts):
            ids = self._inputs.encode(prompt).token_ids
            room = self.facts.max_model_len - len(ids)
            if room < 1:
                raise too_long(self.facts.max_model_len, len(ids))
            searches.append(BeamSearch(ids, params, self.config.model.eos_token_ids, min(params.max_tokens, room)))
        while open_searches := [s for s in searches if not s.is_done]:
            self._advance(open_searches)
        return [s.result(self._tokenizer) for s in searches]

    # --- questions

    def get_tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise OctavoError("this LLM has no tokenizer", "leave skip_tokenizer_init away")
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's generation config recommends, over the defaults."""
        return SamplingParams(**self.config.model.default_sampling)

    def get_metrics(self) -> list[Metric]:
        """Every metric of this engine now. Raises ConfigError if log statistics are off."""
        if self._metrics is None:
            raise ConfigError("metrics are off", "leave disable_log_stats away")
        if self._client.is_alive:
            for batch in self._client.outputs_until_now():
                self._take(batch)
        return self._metrics.snapshot()

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes. False if some are in use."""
        return bool(self._client.call("reset_prefix_cache"))

    # --- end

    def close(self) -> None:
        """Free the model. Can be called twice."""
        self._finalizer()

    shutdown = close

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside

    def _run(self, prompts: list[EncodedPrompt], params: Params, priority: Any, lora_request: Any, use_tqdm: Any) -> list[RequestOutput]:
        requests = self._prepare(prompts, params, priority, lora_request)
        return self._wait(self._send(requests), use_tqdm)

    def _prepare(self, prompts: list[EncodedPrompt], params: Params, priority: Any, lora_request: Any) -> list[PreparedRequest]:
        """Check all prompts before any is computed."""
        _refuse_adapters(lora_request)
        if params is None:
            params = self.get_default_sampling_params()
        each_params = per_prompt(params, len(prompts), "sampling_params")
        priorities = per_prompt(priority or 0, len(prompts), "priority")
        requests = []
        for prompt, given, rank in zip(prompts, each_params, priorities, strict=True):
            if not isinstance(given, SamplingParams):
                raise RequestError(f"sampling_params must be SamplingParams, not {type(given).__name__}", parameter="sampling_params")
            wanted = given if given.skip_clone else given.copy()
            wanted.output_kind = RequestOutputKind.FINAL_ONLY
            requests.append(self._inputs.prepare(str(next(self._names)), prompt, wanted, priority=rank))
        return requests

    def _send(self, requests: list[PreparedRequest]) -> list[_Answer]:
        answers = []
        for request in requests:
            answer = _Answer(self._note_finished)
            for child in self._outputs.add(request, answer):
                self._client.add(child)
            answers.append(answer)
        return answers

    def _wait(self, answers: list[_Answer], use_tqdm: bool | Callable[..., Any]) -> list[RequestOutput]:
        self._progress = Progress.of(use_tqdm, len(answers), self.facts.weights_bytes)
        for answer in answers:
            if answer.output is not None:
                self._note_finished(answer.output)
        try:
            unfinished = list(answers)
            while unfinished:
                if unfinished[-1].output is not None:
                    unfinished.pop()
                else:
                    self._take(self._client.outputs(None))
        except BaseException:
            self._give_up()
            raise
        finally:
            if self._progress is not None:
                self._progress.close()
            self._progress = None
        outputs = [a.output for a in answers if a.output is not None]
        for output in outputs:
            if output.error is not None:
                logger.error("request %s failed: %s", output.request_id, output.error)
        return outputs

    def _take(self, batch: EngineOutputs | None) -> None:
        if batch is None:
            return
        if batch.stats is not None:
            if self._metrics is not None:
                self._metrics.record_engine(batch.stats)
            if self._progress is not None:
                self._progress.note_engine(batch.stats)
        todo = self._outputs.process(batch.outputs, batch.time_s)
        for request in todo.requests:
            self._client.add(request)
        if todo.aborts:
            self._client.abort(todo.aborts)

    def _note_finished(self, output: RequestOutput) -> None:
        if self._progress is not None:
            self._progress.note_finished(output)

    def _give_up(self) -> None:
        """Interrupted: the engine drops all it has, and answers nobody waits for are forgotten."""
        self._enqueued = []
        aborts = self._outputs.abort_everything()
        if aborts and self._client.is_alive:
            self._client.abort(aborts)

    def _advance(self, searches: list[BeamSearch]) -> None:
        """One token more for each search, all of them in one batch."""
        vocabulary = self.config.model.sampled_ids
        batches = [
            [
                self._inputs.prepare(
                    str(next(self._names)),
                    EncodedPrompt(tokens),
                    search.sampling_params(vocabulary),
                    is_internal=True,
                    num_given=search.num_generated,
                )
                for tokens in search.running()
            ]
            for search in searches
        ]
        outputs = iter(self._wait([a for batch in batches for a in self._send(batch)], False))
        for search, batch in zip(searches, batches, strict=True):
            search.advance([_only_position(next(outputs)) for _ in batch])


def _end(client: EngineClient, tracer: Tracer | None) -> None:
    client.shutdown()
    if tracer is not None:
        tracer.shutdown()


def _only_position(output: RequestOutput) -> LogprobsOnePosition:
    if output.error is not None:
        raise OctavoError(f"the engine failed in a beam search: {output.error}")
    logprobs = output.outputs[0].logprobs
    assert logprobs is not None
    return logprobs[0]


def _conversations(messages: Any) -> list[Messages]:
    if not isinstance(messages, (list, tuple)) or not messages:
        raise RequestError("messages must be a list of messages, or a list of such lists", parameter="messages")
    return [list(messages)] if isinstance(messages[0], dict) else [list(m) for m in messages]


def _refuse_adapters(lora_request: Any) -> None:
    if lora_request is not None:
        raise unavailable("lora_request", "a LoRA adapter")
