"""Messages between a front end and the engine core."""

import enum
from typing import Any

import msgspec

from octavo.protocol.pooling_params import PoolingParams
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import LogprobColumns


class FinishReason(enum.IntEnum):
    STOP = 0  # end-of-sequence, a stop token or a stop string
    LENGTH = 1  # max_tokens or max_model_len
    ABORT = 2
    ERROR = 3
    REPETITION = 4

    @property
    def label(self) -> str:
        """As clients and metrics read it."""
        return self.name.lower()


class EngineRequest(msgspec.Struct, array_like=True):
    """One sequence to generate: checked by the front end, complete in itself."""

    request_id: str
    token_ids: bytes  # int32 prompt
    sampling: SamplingParams | None
    arrival_s: float  # time.monotonic() of the front end
    seed: int = 0
    eos_token_ids: list[int] = []  # empty when ignore_eos
    priority: int = 0
    cache_salt: str | None = None
    pooling: PoolingParams | None = None
    adapter: str | None = None
    client: int = 0
    trace_headers: dict[str, str] | None = None


class RequestEvent(msgspec.Struct, array_like=True, frozen=True):
    """Something that happened to a request in the engine core: queued, scheduled, preempted."""

    kind: str
    time_s: float  # time.monotonic(), one clock for all processes of a machine


class EngineOutput(msgspec.Struct, array_like=True):
    """What one step gave one request."""

    request_id: str
    token_ids: list[int] = []
    logprobs: LogprobColumns | None = None
    prompt_logprobs: list[tuple[int, LogprobColumns]] = []  # position of the first token, columns
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the stop token id, when one of stop_token_ids ended it
    error: str | None = None
    num_cached_tokens: int | None = None  # told with the first output: prompt tokens served by the prefix cache
    events: list[RequestEvent] = []


class EngineStats(msgspec.Struct, array_like=True):
    """Gauges now, and counts since the last message."""

    num_running: int = 0
    num_waiting: int = 0
    kv_cache_usage: float = 0.0  # 0 .. 1
    num_preemptions: int = 0
    prefix_queries: int = 0  # tokens
    prefix_hits: int = 0  # tokens
    prompt_tokens: int = 0  # prompt tokens computed; what is computed again after a preemption counts once
    cached_prompt_tokens: int = 0  # prompt tokens that came from the cache instead
    generation_tokens: int = 0
    num_corrupted: int = 0  # requests that ended because logits were no finite numbers
    step_tokens: list[int] = []  # tokens of each step run
    step_s: float = 0.0  # seconds in which the worker computed
    block_lifetimes_s: list[float] = []  # of the cache blocks that are sampled: from allocation to eviction
    block_idles_s: list[float] = []  # from the last use to eviction
    block_gaps_s: list[float] = []  # between two uses


class EngineOutputs(msgspec.Struct, array_like=True):
    """All that one turn of the engine core has to say to one front end."""

    outputs: list[EngineOutput] = []
    stats: EngineStats | None = None
    time_s: float = 0.0


class Abort(msgspec.Struct, array_like=True, tag=True):
    request_ids: list[str]


class Add(msgspec.Struct, array_like=True, tag=True):
    request: EngineRequest


class Call(msgspec.Struct, array_like=True, tag=True):
    """A call of one of the engine core's named methods; answered by a Reply with the same number."""

    number: int
    method: str
    arguments: list[Any] = []


class Unreadable(msgspec.Struct, array_like=True, tag=True):
    """In place of an Add that came and cannot be read: the request is answered, so that nobody waits for it."""

    request_id: str
    reason: str


class Stop(msgspec.Struct, array_like=True, tag=True):
    """End: in-flight requests are aborted."""


class Reply(msgspec.Struct, array_like=True, tag=True):
    number: int
    value: Any = None
    error: str | None = None


class Outputs(msgspec.Struct, array_like=True, tag=True):
    outputs: EngineOutputs


class Ready(msgspec.Struct, array_like=True, tag=True):
    """The engine can answer. `facts` is what the front end needs to know of it."""

    facts: "EngineFacts"


class EngineFacts(msgspec.Struct, array_like=True):
    max_model_len: int
    block_size: int
    num_blocks: int
    cache_tokens: int  # the "KV cache size" of the log
    max_concurrency: float
    cache_bytes: int
    weights_bytes: int
    arena_bytes: int
    runtime_bytes: int
    core_pid: int
    worker_pids: list[int] = []
    choices: dict[str, str] = {}  # op -> implementation
    device: str = "cpu"


class Dead(msgspec.Struct, array_like=True, tag=True):
    """The engine core cannot go on; the last thing it says."""

    reason: str
    hint: str | None = None
    kind: str = "EngineDeadError"  # name of the class in octavo.errors


ToCore = Add | Abort | Call | Stop | Unreadable
FromCore = Outputs | Reply | Ready | Dead
