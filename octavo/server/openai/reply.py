"""Replies of OpenAI's endpoints, as they go over the wire. msgspec: one chunk of a stream is encoded in half a microsecond."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from octavo.protocol.outputs import RequestOutput


class TimesOfRequest(msgspec.Struct):
    """Milliseconds; None for what did not happen."""

    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None
    tokens_per_second: float | None = None
    speculative_decoding: dict[str, Any] | None = None


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails | None = None


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None


class ContentLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[ContentLogprob]


class CompletionLogprobs(msgspec.Struct):
    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class PromptLogprob(msgspec.Struct):
    logprob: float
    rank: int | None
    decoded_token: str | None


PromptLogprobs = list[dict[int, PromptLogprob] | None]


class Message(msgspec.Struct):
    role: str
    content: str
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: dict[str, Any] | None = None
    function_call: dict[str, Any] | None = None
    tool_calls: list[Any] = []
    reasoning: str | None = None


class ChatChoice(msgspec.Struct):
    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: list[int] | None = None


class ChatCompletion(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str | None
    object: str = "chat.completion"
    service_tier: str | None = None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | None = None
    prompt_text: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    metrics: TimesOfRequest | UnsetType = UNSET


class Delta(msgspec.Struct):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    system_fingerprint: str | None
    object: str = "chat.completion.chunk"
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    metrics: TimesOfRequest | UnsetType = UNSET


class CompletionChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType | None = UNSET


class Completion(msgspec.Struct):
    """A whole completion, or a chunk of one."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    system_fingerprint: str | None
    object: str = "text_completion"
    usage: Usage | UnsetType | None = UNSET
    metrics: TimesOfRequest | UnsetType = UNSET


def usage_of(num_prompt: int, num_completion: int, num_cached: int | None) -> Usage:
    """num_cached: None where the server does not tell."""
    details = None if num_cached is None else PromptTokensDetails(num_cached)
    return Usage(num_prompt, num_prompt + num_completion, num_completion, details)


def prompt_logprobs_of(output: RequestOutput) -> PromptLogprobs | None:
    """vLLM's prompt_logprobs: None for the first token, then token id -> log-probability."""
    if output.prompt_logprobs is None:
        return None
    return [
        None if position is None else {token: PromptLogprob(floored(e.logprob), e.rank, e.decoded_token) for token, e in position.items()}
        for position in output.prompt_logprobs
    ]


def floored(logprob: float) -> float:
    """JSON has no infinity."""
    return max(logprob, -9999.0)
