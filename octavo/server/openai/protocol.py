"""Requests of OpenAI's endpoints: their fields, vLLM's beside them, and which of them wait for a later version.

A field that is null counts as absent, an unknown one is let through, and one whose feature does not exist yet is refused by name when it is
set to something that would ask for it.
"""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from octavo.errors import RequestError
from octavo.frontend.inputs import unavailable
from octavo.protocol.sampling_params import RepetitionDetectionParams


class Body(BaseModel):
    """Strict: 5 is not "5" and true is not 1; NaN and infinities are no numbers."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class StreamOptions(Body):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class RepetitionDetection(Body):
    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def parameters(self) -> RepetitionDetectionParams:
        return RepetitionDetectionParams(self.max_pattern_size, self.min_pattern_size, self.min_count)


class GenerationRequest(Body):
    """What chat and completions have in common."""

    # field -> the values that ask for nothing; anything else asks for a feature of a later version
    later: ClassVar[dict[str, tuple[Any, ...]]] = {
        "response_format": ({"type": "text"},),
        "structured_outputs": ({},),
        "thinking_token_budget": (),
        "prompt_embeds": (),
        "kv_transfer_params": ({},),
        "ec_transfer_params": ({},),
        "vllm_xargs": ({},),
        "watermarking": (False,),
        "return_weight_versions": (False,),
        "routed_experts_prompt_start": (0,),
        "return_token_offsets": (False,),
        "media_io_kwargs": ({},),
        "mm_processor_kwargs": ({},),
        "return_mm_kwargs": (False,),
        "truncation_side": ("left",),
        "guided_json": (),
        "guided_regex": (),
        "guided_choice": (),
        "guided_grammar": (),
    }

    model: str | None = None
    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] = Field(default_factory=list)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = Field(default_factory=list)
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    repetition_detection: RepetitionDetection | None = None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    stream: bool = False
    stream_options: StreamOptions | None = None
    stream_interval: int | None = None
    priority: int = 0
    request_id: str | None = None
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool = False
    user: str | None = None

    @model_validator(mode="after")
    def _check(self) -> "GenerationRequest":
        for name, harmless in self.later.items():
            value = (self.model_extra or {}).get(name)
            if value is not None and value not in harmless:
                raise unavailable(name, name)
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options needs stream=true", parameter="stream_options")
        if self.stream and self.prompt_logprobs is not None:
            raise RequestError("prompt_logprobs cannot be had with stream=true", parameter="prompt_logprobs")
        return self


class ChatRequest(GenerationRequest):
    """/v1/chat/completions."""

    later: ClassVar[dict[str, tuple[Any, ...]]] = GenerationRequest.later | {
        "tools": (),
        "tool_choice": ("none", "auto"),
        "functions": (),
        "function_call": ("none", "auto"),
        "audio": (),
        "modalities": (["text"],),
        "web_search_options": (),
        "chat_template": (),
    }

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    echo: bool = False
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    reasoning_effort: str | None = None

    @model_validator(mode="after")
    def _check_chat(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs=true", parameter="top_logprobs")
        if self.continue_final_message and self.add_generation_prompt:
            raise RequestError("continue_final_message and add_generation_prompt exclude each other", parameter="continue_final_message")
        return self


class CompletionRequest(GenerationRequest):
    """/v1/completions."""

    later: ClassVar[dict[str, tuple[Any, ...]]] = GenerationRequest.later | {"suffix": ("",), "best_of": (1,)}

    prompt: Any = None  # text, token ids, or a list of either; checked where prompts are
    max_tokens: int = 16
    echo: bool = False
    logprobs: int | None = None
    add_special_tokens: bool = True
