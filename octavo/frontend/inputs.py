"""Inputs: prompts and parameters become EngineRequests here, and everything that can be wrong with them is found here."""

import copy
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import numpy as np

from octavo import environment, plugins
from octavo.config.config import GrammarConfig, ModelConfig, SchedulerConfig
from octavo.errors import RequestError
from octavo.frontend.reading import Reader
from octavo.frontend.reasoning import ReasoningMarkers, reasoning_of
from octavo.grammar.grammar import grammar_of
from octavo.grammar.vocabulary import SpecialTexts, special_texts
from octavo.logging import get_logger
from octavo.protocol.columns import pack
from octavo.protocol.messages import EngineRequest, Reasoning
from octavo.protocol.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.text.chat_template import check_variables
from octavo.text.tokenizer import Tokenizer

logger = get_logger(__name__)

MOST_CHECKED = 1024  # grammars that are remembered to be right
SEED_MASK = 2**63 - 1  # seeds are positive 64 bit numbers on every side
_NO_TOKENIZER = "leave --skip-tokenizer-init away"
# parameters of features that this version does not have
_LATER = (
    "watermarking",
    "prompt_logprob_start",
    "prompt_logprob_token_ids",
    "routed_experts_prompt_start",
    "trace_decode_token_ids",
)


class TextPrompt(TypedDict):
    """A prompt as text."""

    prompt: str
    cache_salt: NotRequired[str]


class TokensPrompt(TypedDict):
    """A prompt as token ids; `prompt` is only shown."""

    prompt_token_ids: list[int]
    prompt: NotRequired[str]
    cache_salt: NotRequired[str]


Prompt = str | list[int] | TextPrompt | TokensPrompt


@dataclass(slots=True)
class EncodedPrompt:
    """A prompt in both forms; the text is None when only ids were given. warnings: for who sent the conversation that it was made of."""

    token_ids: list[int]
    text: str | None = None
    cache_salt: str | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class PreparedRequest:
    """A request that the engine may have: one child for each of its n sequences."""

    request_id: str  # as the caller named it
    prompt: EncodedPrompt
    params: SamplingParams  # as the caller gave them
    children: list[EngineRequest]
    arrival_s: float
    is_internal: bool = False  # a part of another request
    reader: Reader | None = None  # takes the answers apart


def as_list(prompts: Any) -> list[Prompt]:
    """One prompt, or a sequence of prompts, as a list of prompts. A list of ints is one prompt."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]  # type: ignore[list-item]
    if isinstance(prompts, (list, tuple)):
        if prompts and all(isinstance(p, (int, np.integer)) for p in prompts):
            return [list(prompts)]
        return list(prompts)
    raise RequestError(f"a prompt must be text, token ids or a dictionary, not {type(prompts).__name__}", parameter="prompt")


class InputProcessor:
    """Checks requests against one model. No state but the counters that seeds and ids are drawn from."""

    def __init__(
        self,
        model: ModelConfig,
        scheduler: SchedulerConfig,
        tokenizer: Tokenizer | None,
        max_model_len: int,
        grammar: GrammarConfig | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_model_len = max_model_len
        # set by who knows how the model writes its reasoning, and whether the operator said so: then all requests are held to it, else
        # those whose answers are taken apart, and a grammar binds any other from its first token
        self.reasoning: ReasoningMarkers | None = None
        self.has_typed_reasoning = False
        self._grammar = grammar or GrammarConfig()
        self._specials: SpecialTexts | None = None
        self._checked: OrderedDict[bytes, None] = OrderedDict()
        self._has_priorities = scheduler.policy == "priority"
        self._num_seeds = 0
        self._num_requests = 0

    # --- prompts

    def encode(self, prompt: Prompt, add_special_tokens: bool = True) -> EncodedPrompt:
        """A prompt as token ids. Raises RequestError for what is no prompt; its length is checked by prepare()."""
        if isinstance(prompt, str):
            return EncodedPrompt(self._encode_text(prompt, add_special_tokens), prompt)
        if isinstance(prompt, Mapping):
            return self._encode_mapping(prompt, add_special_tokens)
        if isinstance(prompt, (list, tuple)):
            return EncodedPrompt(_as_ids(prompt))
        raise RequestError(f"a prompt must be text, token ids or a dictionary, not {type(prompt).__name__}", parameter="prompt")

    def _encode_mapping(self, prompt: Mapping[str, Any], add_special_tokens: bool) -> EncodedPrompt:
        for key in prompt:
            if key not in ("prompt", "prompt_token_ids", "cache_salt", "type") and prompt[key] is not None:
                raise unavailable(key, f"a prompt with {key}")
        salt = prompt.get("cache_salt")
        if salt is not None and (not isinstance(salt, str) or not salt):
            raise RequestError("cache_salt must be a non-empty string", parameter="cache_salt")
        text = prompt.get("prompt")
        if text is not None and not isinstance(text, str):
            raise RequestError(f"prompt must be text, not {type(text).__name__}", parameter="prompt")
        if (ids := prompt.get("prompt_token_ids")) is not None:
            return EncodedPrompt(_as_ids(ids), text, salt)
        if text is None:
            raise RequestError("a prompt dictionary needs prompt or prompt_token_ids", parameter="prompt")
        return EncodedPrompt(self._encode_text(text, add_special_tokens), text, salt)

    def _encode_text(self, text: str, add_special_tokens: bool) -> list[int]:
        if self.tokenizer is None:
            raise RequestError("text prompts need a tokenizer, and this engine has none", f"pass token ids, or {_NO_TOKENIZER}", "prompt")
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: list[int]) -> str:
        """The text of token ids, special tokens included. Raises RequestError for an id outside the vocabulary."""
        if self.tokenizer is None:
            raise RequestError("token ids become text by a tokenizer, and this engine has none", _NO_TOKENIZER, "tokens")
        self._check_ids(token_ids, "tokens")
        return self.tokenizer.decode(token_ids, skip_special_tokens=False)

    def _check_ids(self, ids: list[int], name: str) -> None:
        lowest, highest = min(ids, default=0), max(ids, default=0)
        if lowest < 0 or highest >= self.model.vocab_size:
            wrong = lowest if lowest < 0 else highest
            raise RequestError(f"{name}: token id {wrong} is outside the vocabulary of {self.model.vocab_size}", parameter=name)

    # --- requests

    def prepare(
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: SamplingParams,
        *,
        priority: int = 0,
        trace_headers: dict[str, str] | None = None,
        arrival_s: float | None = None,
        is_internal: bool = False,
        num_given: int = 0,
        reader: Reader | None = None,
    ) -> PreparedRequest:
        """Check a request whole and make its children. Raises RequestError, naming the field, before anything has happened.

        is_internal: max_logprobs does not bind (beam search). num_given: so many of the prompt's last tokens are output of before.
        """
        self._check_params(params, priority, is_internal)
        prompt = self.truncated(prompt, params.truncate_prompt_tokens, params.truncation_side, params.max_tokens)
        ids = prompt.token_ids
        num_prompt = self.check_prompt(ids, params.max_tokens)
        arrival_s = time.monotonic() if arrival_s is None else arrival_s
        sampling = self._engine_params(params, num_prompt)
        seed = (params.seed if params.seed is not None else self._draw_seed()) & SEED_MASK
        reasoning = self._reasoning(params, ids[: len(ids) - num_given], reader is not None)
        self._num_requests += 1
        name = f"{request_id}-{self._num_requests:x}"  # two requests may bear one name
        packed = pack(np.asarray(ids, np.int32))
        children = [
            EngineRequest(
                request_id=name if params.n == 1 else f"{name}_{index}",
                token_ids=packed,
                sampling=self._child_params(sampling, index),
                arrival_s=arrival_s,
                seed=(seed + index) & SEED_MASK,
                eos_token_ids=[] if params.ignore_eos else list(self.model.eos_token_ids),
                priority=priority,
                cache_salt=prompt.cache_salt,
                trace_headers=trace_headers,
                reasoning=reasoning,
                num_given=num_given,
                tells_allowed=is_internal and params.structured_outputs is not None,
            )
            for index in range(params.n)
        ]
        return PreparedRequest(request_id, prompt, params, children, arrival_s, is_internal, reader)

    def _check_params(self, params: SamplingParams, priority: int, is_internal: bool) -> None:
        for name in _LATER:
            if getattr(params, name):
                raise unavailable(name, name)
        for name in params.extra_args or {}:
            raise RequestError(
                f"extra_args (vllm_xargs in HTTP): nothing in this engine reads {name!r}", f"leave {name} away", "extra_args"
            )
        if isinstance(priority, bool) or not isinstance(priority, int) or not -(2**63) <= priority < 2**63:
            raise RequestError(f"priority must be an integer of 64 bits, not {priority!r}", parameter="priority")
        if priority and not self._has_priorities:
            raise RequestError(
                f"priority is {priority}, but the scheduler serves in order of arrival",
                "start with --scheduling-policy priority",
                "priority",
            )
        params.check_vocabulary(self.model.sampled_ids, -1 if is_internal else self.model.max_logprobs)
        if params.structured_outputs is not None:
            self.check_grammar(params.structured_outputs)
        if params.thinking_token_budget is not None and self.reasoning is None:
            raise RequestError(
                "thinking_token_budget: it is not known how this model writes its reasoning",
                "start with --reasoning-parser, or leave thinking_token_budget away",
                "thinking_token_budget",
            )
        if self.tokenizer is None and (params.stop or params.bad_words):
            name = "stop" if params.stop else "bad_words"
            raise RequestError(f"{name}: strings need a tokenizer, and this engine has none", _NO_TOKENIZER, name)
        if params.max_tokens == 0 and params.prompt_logprobs is None:
            raise RequestError("max_tokens must be at least 1", "0 asks for prompt_logprobs alone", "max_tokens")

    def check_grammar(self, params: StructuredOutputsParams) -> None:
        """Raise RequestError, naming keyword and place, for what no grammar can be made of. Takes time: what was checked is remembered."""
        if self.tokenizer is None:
            raise RequestError(
                "structured_outputs: a grammar needs a tokenizer, and this engine has none", _NO_TOKENIZER, "structured_outputs"
            )
        if not isinstance(params, StructuredOutputsParams):
            raise RequestError("structured_outputs must be StructuredOutputsParams", parameter="structured_outputs")
        if self._specials is None:
            self._specials = SpecialTexts(special_texts(self.tokenizer.added_tokens))
        grammar = grammar_of(params, self._grammar, self._specials)
        if grammar.key not in self._checked:
            plugins.load("grammar.backends", self._grammar.backend).check(grammar)
            self._checked[grammar.key] = None
            while len(self._checked) > MOST_CHECKED:
                self._checked.popitem(last=False)

    def _reasoning(self, params: SamplingParams, prompt: list[int], is_taken_apart: bool) -> Reasoning | None:
        """How far the prompt has brought the reasoning, for a request to which that matters."""
        if self.reasoning is None or self.tokenizer is None:
            return None
        asked = params.structured_outputs
        waits = asked is not None and (is_taken_apart or self.has_typed_reasoning)
        if not waits and params.thinking_token_budget is None:
            return None
        return reasoning_of(self.reasoning, self.tokenizer, prompt, asked is not None and asked.structural_tag is not None)

    def truncated(self, prompt: EncodedPrompt, keep: int | None, side: str | None, max_tokens: int | None) -> EncodedPrompt:
        """A prompt cut to `keep` tokens; -1: to what leaves room for max_tokens. side: which end is cut off, left unless told."""
        if keep is None:
            return prompt
        if keep == -1:
            keep = max(1, self.max_model_len - (1 if max_tokens is None else max_tokens))
        if keep > self.max_model_len:
            raise RequestError(
                f"truncate_prompt_tokens is {keep}, more than the context of {self.max_model_len} tokens",
                parameter="truncate_prompt_tokens",
            )
        ids = prompt.token_ids
        if len(ids) <= keep:
            return prompt
        ids = ids[:keep] if side == "right" else ids[-keep:]
        text = None if self.tokenizer is None else self.tokenizer.decode(ids, skip_special_tokens=False)
        return EncodedPrompt(ids, text, prompt.cache_salt)

    def check_prompt(self, ids: list[int], max_tokens: int | None) -> int:
        """The number of tokens in a prompt. Raises RequestError for one that is empty or too long, or holds what is no token."""
        if not ids:
            raise RequestError("the prompt is empty", "send at least one token", "prompt")
        self._check_ids(ids, "prompt")
        count = len(ids)
        if count > self.max_model_len:
            raise too_long(self.max_model_len, count)
        if count == self.max_model_len and max_tokens != 0:
            raise RequestError(
                f"This model's maximum context length is {self.max_model_len} tokens. Your prompt contains {count} input tokens, "
                "which leaves no room for an output token.",
                "shorten the prompt by a token or more",
                "prompt",
            )
        return count

    def _engine_params(self, params: SamplingParams, num_prompt: int) -> SamplingParams:
        """What the engine needs of the parameters: one sequence, a definite max_tokens, bad words as ids, no stop strings."""
        result = copy.copy(params)
        result.n = 1
        result.seed = None
        room = self.max_model_len - num_prompt
        result.max_tokens = room if params.max_tokens is None else min(params.max_tokens, room)
        result.min_tokens = min(params.min_tokens, result.max_tokens)
        if params.bad_words:
            assert self.tokenizer is not None
            spelled = self.tokenizer.encode_bad_words(params.bad_words)
            result.bad_words_token_ids = list(params.bad_words_token_ids or []) + spelled
            if sum(map(len, spelled)) > (most := environment.max_bad_words_total_tokens()):
                fact = f"bad_words are {sum(map(len, spelled))} tokens in all their spellings, and {most} is the most"
                raise RequestError(fact, "send fewer", "bad_words")
        result.bad_words = None
        result.stop = []
        result.truncate_prompt_tokens = result.truncation_side = result.extra_args = None
        return result

    def _child_params(self, sampling: SamplingParams, index: int) -> SamplingParams:
        if index == 0 or sampling.prompt_logprobs is None:
            return sampling
        result = copy.copy(sampling)  # the prompt is scored once
        result.prompt_logprobs = None
        return result

    def _draw_seed(self) -> int:
        """The next seed of this engine: a function of its own seed and of how many were drawn, by splitmix64."""
        self._num_seeds += 1
        mask = 2**64 - 1
        x = (self.model.seed * 0xD1342543DE82EF95 + self._num_seeds * 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)


def render_chat(
    tokenizer: Tokenizer,
    model: ModelConfig,
    messages: Sequence[Mapping[str, Any]],
    content_format: str | None = None,
    variables: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> EncodedPrompt:
    """A conversation as the prompt that the chat template makes of it; arguments as of Tokenizer.render_chat. Raises RequestError."""
    check_variables(variables)
    rendered = tokenizer.render_chat(
        messages,
        content_format=content_format or model.chat_template_content_format,
        trust_special_tokens_in_content=model.trust_special_tokens_in_content,
        variables=variables,
        **arguments,
    )
    for warning in rendered.warnings:
        logger.warning("%s", warning)
    return EncodedPrompt(tokenizer.encode_rendered(rendered), rendered.text, warnings=rendered.warnings)


def too_long(max_model_len: int, count: int) -> RequestError:
    """The refusal of a prompt that no context holds."""
    return RequestError(
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains {count} input tokens, "
        "which exceeds it before any output token.",
        "shorten the prompt, or pass truncate_prompt_tokens",
        "prompt",
    )


def unavailable(parameter: str, what: str) -> RequestError:
    """The refusal of a feature that this version does not have."""
    return RequestError(f"{what} is not available in this version of octavo", f"leave {parameter} away", parameter)


def per_prompt(value: Any, count: int, name: str) -> Sequence[Any]:
    """One value for all prompts, or a sequence with one for each."""
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise RequestError(f"{name}: {len(value)} given for {count} prompts", "give one, or one for each prompt", name)
        return value
    return [value] * count


def _as_ids(values: Sequence[Any]) -> list[int]:
    ids = list(values)
    if set(map(type, ids)) == {int}:  # nothing else runs meanwhile, and it may be a million of them
        return ids
    for value in ids:
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, (int, np.integer))):
            raise RequestError(f"a prompt of token ids must hold integers only, not {value!r}", parameter="prompt")
    return [int(v) for v in ids]
