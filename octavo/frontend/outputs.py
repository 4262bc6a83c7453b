"""Outputs: what the engine says of sequences becomes RequestOutputs, each handed to the one who asked."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from octavo.errors import RequestError
from octavo.frontend.inputs import PreparedRequest
from octavo.frontend.logprobs import LogprobReader, new_logprobs, num_top
from octavo.frontend.metrics import FinishedSequence, Metrics
from octavo.frontend.sequence import Sequence
from octavo.frontend.tracing import RequestTrace, Tracer
from octavo.protocol.messages import EngineOutput, EngineRequest, FinishReason
from octavo.protocol.outputs import LogprobsOnePosition, RequestMetrics, RequestOutput
from octavo.protocol.sampling_params import RequestOutputKind
from octavo.text.tokenizer import Tokenizer


class Sink(Protocol):
    """Where a request's outputs go."""

    def put(self, output: RequestOutput) -> None:
        """One more output; the last one has finished=True."""
        ...

    def fail(self, error: Exception) -> None:
        """Nothing more comes, because of this."""
        ...


@dataclass(slots=True)
class Todo:
    """What the engine has to be told after outputs were processed."""

    aborts: list[str] = field(default_factory=list)
    requests: list[EngineRequest] = field(default_factory=list)


class RequestState:
    """A request in flight: its sequences, and the children that wait for the first one to fill the prefix cache."""

    def __init__(self, request: PreparedRequest, sink: Sink, tokenizer: Tokenizer | None, stream_interval: int) -> None:
        self.request = request
        self.sink = sink
        params = request.params
        ids = request.prompt.token_ids
        self.sequences = [Sequence(i, child.request_id, params, tokenizer, ids) for i, child in enumerate(request.children)]
        self.waiting: list[EngineRequest] = []
        self.error: str | None = None
        self.is_refused = False
        self._kind = params.output_kind
        self._interval = max(stream_interval, params.stream_interval or 1)
        self._prompt_logprobs: list[LogprobsOnePosition | None] | None = None
        self._told_prompt = False
        if params.prompt_logprobs is not None:
            self._prompt_logprobs = new_logprobs(params)
            self._prompt_logprobs.append(None)  # the first token follows nothing
            self._prompt_reader = LogprobReader(tokenizer if params.detokenize else None, num_top(params, params.prompt_logprobs))

    @property
    def is_finished(self) -> bool:
        return all(s.is_finished for s in self.sequences)

    def take_prompt(self, output: EngineOutput) -> None:
        for _, columns in output.prompt_logprobs:
            if self._prompt_logprobs is not None:
                self._prompt_logprobs.extend(self._prompt_reader.read(columns)[0])

    def emit(self) -> RequestOutput | None:
        """The output that is due now, if one is."""
        finished = self.is_finished
        if self._kind is RequestOutputKind.FINAL_ONLY:
            return self._output(self.sequences, only_new=False, finished=True) if finished else None
        if self._awaits_prompt_logprobs() and not finished:
            return None
        due = [s for s in self.sequences if self._is_due(s)]
        if not due:
            return None
        return self._output(due, only_new=self._kind is RequestOutputKind.DELTA, finished=finished)

    def _awaits_prompt_logprobs(self) -> bool:
        return self._prompt_logprobs is not None and len(self._prompt_logprobs) < len(self.request.prompt.token_ids)

    def _is_due(self, sequence: Sequence) -> bool:
        if sequence.is_finished:
            return not sequence.is_told
        return sequence.num_untold > 0 and (not sequence.has_told or sequence.num_untold >= self._interval)

    def _output(self, sequences: list[Sequence], only_new: bool, finished: bool) -> RequestOutput:
        told_before, self._told_prompt = self._told_prompt, True
        outputs = [s.tell(only_new) for s in sequences]
        for sequence in sequences:
            sequence.is_told = sequence.is_finished
        return RequestOutput(
            request_id=self.request.request_id,
            prompt=self.request.prompt.text,
            prompt_token_ids=self.request.prompt.token_ids,
            prompt_logprobs=None if only_new and told_before else self._prompt_logprobs,
            outputs=outputs,
            finished=finished,
            metrics=self._metrics(finished) if finished or not only_new else None,
            num_cached_tokens=self.sequences[0].num_cached,
            error=self.error,
        )

    def _metrics(self, finished: bool) -> RequestMetrics:
        first = self.sequences[0]
        starts = [s.first_token_s for s in self.sequences if s.first_token_s is not None]
        ends = [s.last_token_s for s in self.sequences if s.last_token_s is not None]
        return RequestMetrics(
            arrival_time=self.request.arrival_s,
            queued_time=first.queued_s,
            scheduled_time=first.scheduled_s,
            first_token_time=min(starts, default=None),
            last_token_time=max(ends, default=None),
            finished_time=time.monotonic() if finished else None,
            num_preemptions=sum(s.num_preemptions for s in self.sequences),
            num_generation_tokens=sum(len(s.token_ids) for s in self.sequences),
        )


class OutputProcessor:
    """Knows every request in flight. Used by one thread."""

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        stream_interval: int,
        metrics: Metrics | None,
        shared_prefix: int | None,
        tracer: Tracer | None = None,
        model: str = "",
    ) -> None:
        """shared_prefix: children of a prompt longer than this wait for the first one, to find its blocks; None = they never do.

        model: its name in traces.
        """
        self._tokenizer = tokenizer
        self._interval = stream_interval
        self._metrics = metrics
        self._shared_prefix = shared_prefix
        self._tracer = tracer
        self._model = model
        self.num_deferred = 0  # sequences that wait here for the first one of their request
        self._sequences: dict[str, tuple[RequestState, Sequence]] = {}  # by the id the engine knows
        self._states: dict[str, list[RequestState]] = {}  # by the id the caller knows
        self.num_queued_tokens = 0  # prompt tokens of sequences whose turn has not come

    @property
    def num_unfinished(self) -> int:
        """Sequences in flight, those included that wait in the front end."""
        return len(self._sequences)

    def add(self, request: PreparedRequest, sink: Sink) -> list[EngineRequest]:
        """Enter a request; what the engine must be given now."""
        state = RequestState(request, sink, self._tokenizer, self._interval)
        for sequence in state.sequences:
            self._sequences[sequence.engine_id] = (state, sequence)
        self.num_queued_tokens += len(request.prompt.token_ids) * len(state.sequences)
        self._states.setdefault(request.request_id, []).append(state)
        children = request.children
        if self._shared_prefix is not None and len(children) > 1 and len(request.prompt.token_ids) > self._shared_prefix:
            state.waiting = children[1:]
            children = children[:1]
            self._note_deferred(len(state.waiting))
        for sequence in state.sequences[: len(children)]:
            sequence.is_sent = True
        return children

    def process(self, outputs: Iterable[EngineOutput], time_s: float = 0.0) -> Todo:
        """Take the outputs of a turn of the engine (time_s: when it made them), and hand on what is due."""
        todo = Todo()
        touched: dict[int, RequestState] = {}
        time_s = time_s or time.monotonic()
        for output in outputs:
            found = self._sequences.get(output.request_id)
            if found is None:  # it was aborted, and the engine had not heard yet
                continue
            state, sequence = found
            touched[id(state)] = state
            self._take(state, sequence, output, time_s, todo)
        for state in touched.values():
            due = None if state.is_refused else state.emit()
            if due is not None:
                state.sink.put(due)
        return todo

    def abort(self, request_ids: Iterable[str]) -> list[str]:
        """End requests by the caller's ids: their sinks get a last output. Returns what the engine must abort."""
        states = [state for request_id in request_ids for state in self._states.get(request_id, [])]
        return [engine_id for state in states for engine_id in self._end(state, FinishReason.ABORT, tell=True)]

    def drop(self, request: PreparedRequest) -> list[str]:
        """Forget a request whose sink nobody reads any more. Returns what the engine must abort."""
        states = [state for state in self._states.get(request.request_id, []) if state.request is request]
        return [engine_id for state in states for engine_id in self._end(state, FinishReason.ABORT, tell=False)]

    def fail_all(self, error: Exception) -> list[str]:
        """Every sink gets the error. Returns what the engine would have to abort."""
        states = [state for states in self._states.values() for state in states]
        aborts: list[str] = []
        for state in states:
            aborts += self._end(state, FinishReason.ERROR, tell=False)
            state.sink.fail(error)
        return aborts

    def abort_everything(self) -> list[str]:
        """Forget every request. Returns what the engine must abort."""
        states = [state for states in self._states.values() for state in states]
        return [engine_id for state in states for engine_id in self._end(state, FinishReason.ABORT, tell=False)]

    def _take(self, state: RequestState, sequence: Sequence, output: EngineOutput, time_s: float, todo: Todo) -> None:
        for event in output.events:
            if event.kind == "scheduled" and sequence.scheduled_s is None:
                self.num_queued_tokens -= len(state.request.prompt.token_ids)
            _note_event(sequence, event.kind, event.time_s)
        if output.num_cached_tokens is not None and sequence.num_cached is None:
            sequence.num_cached = output.num_cached_tokens
        if output.prompt_logprobs:
            state.take_prompt(output)
        if output.finish_reason is FinishReason.ERROR:
            state.error = output.error or "the engine failed on this request"
            todo.aborts += [i for i in self._end(state, FinishReason.ERROR, tell=False) if i != output.request_id]
            if sequence.queued_s is None:  # it was never let in: the request is wrong, not the engine
                state.is_refused = True
                state.sink.fail(RequestError(state.error))
            return
        num_before = len(sequence.token_ids)
        if sequence.take(output):
            todo.aborts.append(sequence.engine_id)
        if (num_new := len(sequence.token_ids) - num_before) > 0:
            self._note_tokens(state, sequence, num_new, time_s)
        if state.waiting and (output.token_ids or sequence.is_finished):
            todo.requests += state.waiting
            self._note_deferred(-len(state.waiting))
            state.waiting = []
            for other in state.sequences:
                other.is_sent = True
        if sequence.is_finished:
            self._leave(state, sequence)

    def _note_tokens(self, state: RequestState, sequence: Sequence, count: int, time_s: float) -> None:
        metrics = self._metrics
        if sequence.first_token_s is None:
            sequence.first_token_s = time_s
            if metrics is not None:
                metrics.record_first_tokens(max(0.0, time.monotonic() - state.request.arrival_s), count)
        elif metrics is not None and sequence.last_token_s is not None:
            metrics.record_next_tokens(max(0.0, time_s - sequence.last_token_s), count)
        sequence.last_token_s = time_s

    def _end(self, state: RequestState, reason: FinishReason, tell: bool) -> list[str]:
        """End all that is unfinished of a request; the ids that the engine still works on."""
        if state.waiting:
            self._note_deferred(-len(state.waiting))
            state.waiting = []
        open_sequences = [s for s in state.sequences if not s.is_finished]
        for sequence in open_sequences:
            sequence.end(reason)
            self._leave(state, sequence)
        if tell and (due := state.emit()) is not None:
            state.sink.put(due)
        return [s.engine_id for s in open_sequences if s.is_sent]

    def _leave(self, state: RequestState, sequence: Sequence) -> None:
        del self._sequences[sequence.engine_id]
        if sequence.scheduled_s is None:
            self.num_queued_tokens -= len(state.request.prompt.token_ids)
        if self._metrics is not None:
            self._metrics.record_finished(_summary(state, sequence))
        if state.is_finished:
            self._note_end(state)
            name = state.request.request_id
            self._states[name].remove(state)
            if not self._states[name]:
                del self._states[name]

    def _note_deferred(self, change: int) -> None:
        self.num_deferred += change
        if self._metrics is not None:
            self._metrics.record_deferred(change)

    def _note_end(self, state: RequestState) -> None:
        if self._metrics is not None:
            self._metrics.record_request(len(state.sequences), max(len(s.token_ids) for s in state.sequences))
        if self._tracer is not None and not state.request.is_internal:
            self._tracer.record(_trace(state, self._model))


def _note_event(sequence: Sequence, kind: str, time_s: float) -> None:
    if kind == "queued":
        sequence.queued_s = time_s
    elif kind == "scheduled" and sequence.scheduled_s is None:
        sequence.scheduled_s = time_s
    elif kind == "preempted":
        sequence.num_preemptions += 1


def _summary(state: RequestState, sequence: Sequence) -> FinishedSequence:
    sampling = state.request.children[sequence.index].sampling
    scheduled, first, last = sequence.scheduled_s, sequence.first_token_s, sequence.last_token_s
    queued = sequence.queued_s if sequence.queued_s is not None else state.request.arrival_s
    return FinishedSequence(
        reason=FinishReason.ERROR if sequence.finish_reason is None else sequence.finish_reason,  # STOP is 0
        num_prompt=len(state.request.prompt.token_ids),
        num_generated=len(sequence.token_ids),
        max_tokens=(sampling.max_tokens if sampling is not None else None) or 0,
        total_s=max(0.0, time.monotonic() - state.request.arrival_s),
        queue_s=None if scheduled is None else max(0.0, scheduled - queued),
        prefill_s=None if scheduled is None or first is None else max(0.0, first - scheduled),
        decode_s=None if first is None or last is None else max(0.0, last - first),
        num_cached=sequence.num_cached or 0,
        num_preemptions=sequence.num_preemptions,
    )


def _trace(state: RequestState, model: str) -> RequestTrace:
    request, sequences = state.request, state.sequences
    first = sequences[0]
    return RequestTrace(
        request_id=request.request_id,
        model=model,
        params=request.params,
        headers=request.children[0].trace_headers,
        arrival_s=request.arrival_s,
        queued_s=first.queued_s,
        scheduled_s=first.scheduled_s,
        first_token_s=min((s.first_token_s for s in sequences if s.first_token_s is not None), default=None),
        last_token_s=max((s.last_token_s for s in sequences if s.last_token_s is not None), default=None),
        num_prompt=len(request.prompt.token_ids),
        num_generated=sum(len(s.token_ids) for s in sequences),
        num_sequences=len(sequences),
        finish_reasons=[s.finish_reason.label for s in sequences if s.finish_reason is not None],
        error=state.error,
    )
