"""SamplingParams: what a client may ask of the tokens of one request, checked when it is made.

Fields, defaults and ranges are vLLM's, so that code written for it runs unchanged.
"""

import enum
import math
from types import NoneType
from typing import Any

import msgspec

from octavo import environment
from octavo.errors import RequestError

INT_LIMIT = 2**63  # a message cannot hold a larger one
FLOAT_LIMIT = 1e308  # nan is not below it either
GREEDY_BELOW = 1e-5  # a temperature under this is greedy
LOWEST_TEMPERATURE = 0.01  # one in between is raised to this, or float32 logits overflow
HIGHEST_REPETITION_PENALTY = 1e6  # beyond it, and below its inverse, float32 logits may overflow
MAX_LOGPROB_TOKEN_IDS = 128
MAX_WORDS_LENGTH = 65_536  # characters of all stop strings, or of all bad words, together


class RequestOutputKind(enum.IntEnum):
    CUMULATIVE = 0  # each output holds everything so far
    DELTA = 1  # each output holds what is new
    FINAL_ONLY = 2  # one output, at the end


class StructuredOutputsParams(msgspec.Struct, omit_defaults=True):
    """A grammar for the output; exactly one of the first six."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None


class RepetitionDetectionParams(msgspec.Struct, omit_defaults=True):
    """Ends a request whose last tokens are one pattern of min..max_pattern_size tokens, min_count times in a row."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def __post_init__(self) -> None:
        numbers = (self.max_pattern_size, self.min_pattern_size, self.min_count)
        if min(numbers) < 0 or max(numbers) >= INT_LIMIT:
            raise RequestError(
                "repetition_detection: sizes and counts cannot be negative, and must fit in 64 bits", parameter="repetition_detection"
            )
        if self.max_pattern_size:
            self.min_pattern_size = self.min_pattern_size or 1
            if self.min_pattern_size > self.max_pattern_size or self.min_count < 2:
                raise RequestError(
                    "repetition_detection needs min_pattern_size <= max_pattern_size and min_count >= 2",
                    parameter="repetition_detection",
                )


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Parameters of one request. Raises RequestError, naming the field, for a value out of range."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    truncate_prompt_tokens: int | None = None  # keep so many tokens of the prompt; -1 = as many as fit
    truncation_side: str | None = None  # which end of the prompt is cut off; None = left
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    stream_interval: int | None = None
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    bad_words_token_ids: list[list[int]] | None = None  # filled by the front end, which has the tokenizer
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    extra_args: dict[str, Any] | None = None
    skip_clone: bool = False  # LLM may use this very object, which is then the caller's not to change
    watermarking: bool | None = None
    prompt_logprob_start: int | None = None
    prompt_logprob_token_ids: list[list[int]] | None = None
    routed_experts_prompt_start: int = 0
    trace_decode_token_ids: list[int] | None = None

    def __post_init__(self) -> None:
        for name in ("stop", "stop_token_ids", "allowed_token_ids", "logprob_token_ids", "bad_words"):
            value = getattr(self, name)
            if not isinstance(value, (list, tuple, set, frozenset, NoneType)) and not (name == "stop" and isinstance(value, str)):
                raise _wrong(name, f"{name} must be a list, not {value!r}")
        self.stop = [self.stop] if isinstance(self.stop, str) else list(self.stop or [])
        self.stop_token_ids = list(self.stop_token_ids or [])
        if self.seed == -1:
            self.seed = None
        if self.top_k == -1:
            self.top_k = 0
        self._check_types()
        self._check_ranges()
        self._check_output()
        if self.temperature < GREEDY_BELOW:
            if self.n > 1:
                raise _wrong("n", f"n must be 1 when sampling is greedy, not {self.n}")
            self.temperature, self.top_p, self.top_k, self.min_p = 0.0, 1.0, 0, 0.0
        elif self.temperature < LOWEST_TEMPERATURE:
            self.temperature = LOWEST_TEMPERATURE

    def _check_types(self) -> None:
        for name in ("n", "top_k", "min_tokens"):
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, int):
                raise _wrong(name, f"{name} must be an integer, not {value!r}")
        floats = ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "min_p")
        for name in floats:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= FLOAT_LIMIT:
                raise _wrong(name, f"{name} must be a finite number, not {value!r}")
        for name in ("max_tokens", "logprobs", "prompt_logprobs", "truncate_prompt_tokens", "seed", "stream_interval"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise _wrong(name, f"{name} must be an integer, not {value!r}")
        for name in ("top_k", "min_tokens", "max_tokens", "logprobs", "prompt_logprobs", "truncate_prompt_tokens", "stream_interval"):
            if abs(getattr(self, name) or 0) >= INT_LIMIT:
                raise _wrong(name, f"{name} must fit in 64 bits, not be {getattr(self, name)}")

    def _check_ranges(self) -> None:
        if not 1 <= self.n <= environment.max_num_sequences():
            raise _wrong("n", f"n must be between 1 and {environment.max_num_sequences()}, not {self.n}")
        for name in ("presence_penalty", "frequency_penalty"):
            if not -2.0 <= getattr(self, name) <= 2.0:
                raise _wrong(name, f"{name} must be in [-2, 2], not {getattr(self, name)}")
        if self.repetition_penalty <= 0.0:
            raise _wrong("repetition_penalty", f"repetition_penalty must be greater than zero, not {self.repetition_penalty}")
        if not 1 / HIGHEST_REPETITION_PENALTY <= self.repetition_penalty <= HIGHEST_REPETITION_PENALTY:
            low, high = 1 / HIGHEST_REPETITION_PENALTY, HIGHEST_REPETITION_PENALTY
            raise _wrong("repetition_penalty", f"repetition_penalty must be in [{low:g}, {high:g}], not {self.repetition_penalty}")
        if not 0.0 <= self.temperature <= 2.0:
            raise _wrong("temperature", f"temperature must be in [0, 2], not {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise _wrong("top_p", f"top_p must be in (0, 1], not {self.top_p}")
        if self.top_k < 0:
            raise _wrong("top_k", f"top_k must be 0 or -1 (off), or at least 1, not {self.top_k}")
        if not 0.0 <= self.min_p <= 1.0:
            raise _wrong("min_p", f"min_p must be in [0, 1], not {self.min_p}")
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise _wrong("seed", f"seed must fit in 64 bits, not {self.seed}")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise _wrong("max_tokens", f"max_tokens must be at least 1, or 0 to score the prompt alone, not {self.max_tokens}")
        if self.min_tokens < 0:
            raise _wrong("min_tokens", f"min_tokens must be at least 0, not {self.min_tokens}")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise _wrong("min_tokens", f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})")
        if self.truncate_prompt_tokens is not None and (self.truncate_prompt_tokens < -1 or self.truncate_prompt_tokens == 0):
            raise _wrong("truncate_prompt_tokens", "truncate_prompt_tokens must be -1 or at least 1")
        if self.truncation_side not in (None, "left", "right"):
            raise _wrong("truncation_side", f"truncation_side must be left or right, not {self.truncation_side!r}")
        if self.stream_interval is not None and self.stream_interval < 1:
            raise _wrong("stream_interval", f"stream_interval must be at least 1, not {self.stream_interval}")

    def _check_output(self) -> None:
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None and value < -1:
                raise _wrong(name, f"{name} must be -1 (all) or at least 0, not {value}")
        if self.logprob_token_ids is not None and len(self.logprob_token_ids) > MAX_LOGPROB_TOKEN_IDS:
            raise _wrong("logprob_token_ids", f"logprob_token_ids may name at most {MAX_LOGPROB_TOKEN_IDS} tokens")
        if any(not isinstance(s, str) or not s for s in self.stop or []):
            raise _wrong("stop", "stop must hold non-empty strings")
        if sum(map(len, self.stop or [])) > MAX_WORDS_LENGTH:
            raise _wrong("stop", f"stop may hold at most {MAX_WORDS_LENGTH} characters")
        if self.stop and not self.detokenize:
            raise _wrong("stop", "stop strings need detokenize=True")
        for name in ("stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
            if any(isinstance(t, bool) or not isinstance(t, int) or t < 0 for t in getattr(self, name) or []):
                raise _wrong(name, f"{name} must hold token ids")
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise _wrong("allowed_token_ids", "allowed_token_ids must not be empty")
        self._check_bad_words()
        if self.logit_bias:
            self.logit_bias = _checked_bias(self.logit_bias)

    def _check_bad_words(self) -> None:
        words = self.bad_words or []
        if len(words) > (most := environment.max_num_bad_words()) or any(not isinstance(w, str) or not w for w in words):
            raise _wrong("bad_words", f"bad_words must be at most {most} non-empty strings")
        if sum(map(len, words)) > MAX_WORDS_LENGTH:
            raise _wrong("bad_words", f"bad_words may hold at most {MAX_WORDS_LENGTH} characters")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    def check_vocabulary(self, vocabulary: int, max_logprobs: int) -> None:
        """Raise RequestError for a token id outside 0 .. vocabulary-1, or more log-probabilities than the server gives."""
        for name in ("stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
            for token in getattr(self, name) or []:
                if token >= vocabulary:
                    raise _wrong(name, f"{name}: token id {token} is outside the vocabulary of {vocabulary}")
        for token in self.logit_bias or {}:
            if not 0 <= token < vocabulary:
                raise _wrong("logit_bias", f"logit_bias: token id {token} is outside the vocabulary of {vocabulary}")
        limit = vocabulary if max_logprobs == -1 else max_logprobs
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None and (vocabulary if value == -1 else value) > limit:
                raise _wrong(name, f"{name}: {value} requested, the server gives at most {limit}")

    def copy(self) -> "SamplingParams":
        """An independent copy."""
        return msgspec.convert(msgspec.to_builtins(self), SamplingParams, strict=False)


class BeamSearchParams(msgspec.Struct, omit_defaults=True):
    """Parameters of a beam search."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    allowed_token_ids: list[int] | None = None
    structured_outputs: StructuredOutputsParams | None = None
    watermarking: bool | None = None

    def __post_init__(self) -> None:
        for name in ("structured_outputs", "watermarking"):
            if getattr(self, name):
                raise _wrong(name, f"{name} is not available in this version of octavo")
        if not 1 <= self.beam_width <= environment.max_num_sequences():
            raise _wrong("beam_width", f"beam_width must be between 1 and {environment.max_num_sequences()}, not {self.beam_width}")
        if not (math.isfinite(self.length_penalty) and math.isfinite(self.temperature) and 0.0 <= self.temperature <= 2.0):
            raise _wrong("length_penalty", "a beam search needs a finite length_penalty and a temperature in [0, 2]")
        if self.max_tokens < 1:
            raise _wrong("max_tokens", f"max_tokens must be at least 1, not {self.max_tokens}")


def _checked_bias(given: Any) -> dict[int, float]:
    """logit_bias with token ids for keys, and clamped."""
    if not isinstance(given, dict):
        raise _wrong("logit_bias", f"logit_bias must map token ids to numbers, not be {given!r}")
    bias: dict[int, float] = {}
    for key, value in given.items():
        try:
            token, amount = int(key), float(value)
        except (TypeError, ValueError):
            raise _wrong("logit_bias", f"logit_bias must map token ids to numbers, not {key!r}: {value!r}") from None
        if math.isnan(amount):
            raise _wrong("logit_bias", f"logit_bias of token {key} is not a number")
        bias[token] = min(100.0, max(-100.0, amount))
    return bias


def _wrong(parameter: str, fact: str) -> RequestError:
    return RequestError(fact, parameter=parameter)
