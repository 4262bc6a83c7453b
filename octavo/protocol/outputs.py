"""Outputs: what the Python API returns for a request, with vLLM's names."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, overload


@dataclass(slots=True)
class Logprob:
    """The log-probability of one token at one position. `rank` counts from 1 = most likely."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


LogprobsOnePosition = dict[int, Logprob]


@dataclass(slots=True, eq=False)
class FlatLogprobs:
    """The log-probabilities of many positions in a few long lists, which a garbage collector walks in no time.

    It reads as the list of dictionaries that it stands for; SamplingParams.flat_logprobs asks for it. Position i has the entries
    start_indices[i] .. end_indices[i] - 1 of the other lists; a position without any is None.
    """

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ranks: list[int | None] = field(default_factory=list)
    decoded_tokens: list[str | None] = field(default_factory=list)

    def append(self, position: LogprobsOnePosition | None) -> None:
        """One more position."""
        self.start_indices.append(len(self.token_ids))
        for token, entry in (position or {}).items():
            self.token_ids.append(token)
            self.logprobs.append(entry.logprob)
            self.ranks.append(entry.rank)
            self.decoded_tokens.append(entry.decoded_token)
        self.end_indices.append(len(self.token_ids))

    def extend(self, positions: Iterable[LogprobsOnePosition | None]) -> None:
        for position in positions:
            self.append(position)

    def __iadd__(self, positions: Iterable[LogprobsOnePosition | None]) -> "FlatLogprobs":
        self.extend(positions)
        return self

    def __len__(self) -> int:
        return len(self.start_indices)

    @overload
    def __getitem__(self, index: int) -> LogprobsOnePosition | None: ...
    @overload
    def __getitem__(self, index: slice) -> "FlatLogprobs": ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            part = FlatLogprobs()
            part.extend(self[i] for i in range(*index.indices(len(self))))
            return part
        start, end = self.start_indices[index], self.end_indices[index]
        if start == end:
            return None
        columns = (self.token_ids, self.logprobs, self.ranks, self.decoded_tokens)
        return {token: Logprob(*values) for token, *values in zip(*(column[start:end] for column in columns), strict=True)}

    def __iter__(self) -> Iterator[LogprobsOnePosition | None]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, FlatLogprobs)) and list(self) == list(other)


@dataclass(slots=True)
class RequestMetrics:
    """Moments of a request on time.monotonic()'s clock; None until they happen."""

    arrival_time: float = 0.0
    queued_time: float | None = None
    scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    finished_time: float | None = None
    num_preemptions: int = 0
    num_generation_tokens: int = 0


@dataclass(slots=True)
class CompletionOutput:
    """One generated sequence of a request."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[LogprobsOnePosition] | None = None  # FlatLogprobs, if asked for
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    lora_request: Any = None
    routed_experts: Any = None  # this and what follows: of features that this version does not have
    sampling_mask: Any = None
    spec_decode_metrics: Any = None
    weight_versions: Any = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestOutput:
    """Everything a request has given so far, or since the last output when its kind is DELTA."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: list[LogprobsOnePosition | None] | None  # FlatLogprobs, if asked for
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics | None = None
    lora_request: Any = None
    encoder_prompt: str | None = None
    encoder_prompt_token_ids: list[int] | None = None
    num_cached_tokens: int | None = None
    num_cache_creation_tokens: int | None = None
    kv_transfer_params: dict[str, Any] | None = None
    error: str | None = None  # why the engine failed on this request; its outputs then have finish_reason "error"


@dataclass(slots=True)
class BeamSearchSequence:
    tokens: list[int]
    cum_logprob: float = 0.0
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: list[LogprobsOnePosition] = field(default_factory=list)


@dataclass(slots=True)
class BeamSearchOutput:
    """The best sequences of one prompt, best first."""

    sequences: list[BeamSearchSequence]
