"""Requests of OpenAI's endpoints: their fields, vLLM's beside them, and which of them wait for a later version.

A field that is null counts as absent, an unknown one is let through and told to the client as ignored, and one whose feature does not
exist yet is refused by name when it is set to something that would ask for it.
"""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from octavo.errors import RequestError
from octavo.frontend.inputs import unavailable
from octavo.protocol.sampling_params import RepetitionDetectionParams
from octavo.server.openai.form import read_form
from octavo.server.openai.tools import CHOICE_SCHEMA, TOOLS_SCHEMA, Offer, read_offer, read_tools

Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Argument = str | int | float | list[str | int | float]
_IDS: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_PROMPTS: list[Any] = [_TEXT, _IDS, {"type": "array", "items": _TEXT, "minItems": 1}, {"type": "array", "items": _IDS, "minItems": 1}]


class Body(BaseModel):
    """Strict: 5 is not "5" and true is not 1; NaN and infinities are no numbers."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    # field -> the values that ask for nothing; anything else asks for a feature of a later version
    later: ClassVar[dict[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _check_later(self) -> "Body":
        for name, harmless in self.later.items():
            value = (self.model_extra or {}).get(name)
            if value is not None and value not in harmless:
                raise unavailable(name, name)
        return self

    _warnings: list[str] = PrivateAttr(default_factory=list)

    def warn(self, warnings: Iterable[str]) -> None:
        """Keep what the client is to be told of its request."""
        self._warnings.extend(warnings)

    @property
    def warnings(self) -> list[str]:
        return self._warnings

    @property
    def ignored(self) -> list[str]:
        """The fields that nothing reads."""
        return [name for name in self.model_extra or {} if name not in self.later]


class StreamOptions(Body):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class RepetitionDetection(Body):
    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def parameters(self) -> RepetitionDetectionParams:
        return RepetitionDetectionParams(self.max_pattern_size, self.min_pattern_size, self.min_count)


class Conversation(Body):
    """A conversation, and how the chat template makes a prompt of it."""

    later: ClassVar[dict[str, tuple[Any, ...]]] = {
        "media_io_kwargs": ({},),
        "mm_processor_kwargs": ({},),
    }

    messages: list[dict[str, Any]] = Field(min_length=1, description="The conversation; content is text, or a list of parts that are text.")
    add_generation_prompt: bool | None = Field(None, description="End with the head of a new message; default true.")
    continue_final_message: bool = Field(False, description="Let the final message be open, to be continued.")
    add_special_tokens: bool = Field(False, description="Put the begin-of-sequence token before what the template made.")
    chat_template: str | None = Field(None, description="A template instead of the model's; needs --trust-request-chat-template.")
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict, description="Variables for the template.")
    tools: list[Any] | None = Field(None, description="Functions that the model may call.", json_schema_extra=TOOLS_SCHEMA)

    @model_validator(mode="after")
    def _check_conversation(self) -> "Conversation":
        read_tools(self.tools)
        if self.continue_final_message and self.add_generation_prompt:
            raise RequestError("continue_final_message and add_generation_prompt exclude each other", parameter="continue_final_message")
        return self

    @property
    def begins_message(self) -> bool:
        """Whether the prompt ends with the head of a new message."""
        return not self.continue_final_message if self.add_generation_prompt is None else self.add_generation_prompt


class GenerationRequest(Body):
    """What chat and completions have in common."""

    later: ClassVar[dict[str, tuple[Any, ...]]] = {
        "prompt_embeds": (),
        "kv_transfer_params": ({},),
        "ec_transfer_params": ({},),
        "watermarking": (False,),
        "return_weight_versions": (False,),
        "routed_experts_prompt_start": (0,),
        "return_token_offsets": (False,),
        "mm_payload": ("tensors",),
        "return_mm_kwargs": (False,),
        "guided_json": (),
        "guided_regex": (),
        "guided_choice": (),
        "guided_grammar": (),
    }

    model: str | None = Field(None, description="One of the served names; default: the first.")
    n: int = Field(1, description="Answers to each prompt.")
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = Field(None, description="Token id -> what is added to its logit, -100 .. 100.")
    seed: Int64 | None = None
    stop: str | list[str] | None = Field(None, description="One stop string or several, at most OCTAVO_MAX_STOP_STRINGS (4).")
    stop_token_ids: list[int] = Field(default_factory=list)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: Int64 | None = Field(None, description="Keep so many tokens of the prompt; -1: as many as fit.")
    truncation_side: Literal["left", "right"] | None = Field(None, description="Which end of the prompt is cut off; default left.")
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = Field(default_factory=list)
    prompt_logprobs: int | None = Field(None, description="Likelihood of the prompt's tokens, with so many rivals; -1: all. Not streamed.")
    logprob_token_ids: list[int] | None = Field(None, description="Tokens whose likelihood is told at each position; needs logprobs.")
    repetition_detection: RepetitionDetection | None = None
    use_beam_search: bool = Field(False, description="Return the n most likely continuations instead of sampled ones.")
    length_penalty: float = 1.0
    stream: bool = False
    stream_options: StreamOptions | None = None
    stream_interval: int | None = Field(None, ge=1, description="Tokens between two chunks, if more than the server's own.")
    response_format: dict[str, Any] | None = Field(
        None, description="Form of the answer: {type: text | json_object | json_schema | structural_tag, ...}."
    )
    structured_outputs: dict[str, Any] | None = Field(
        None, description="Form of the answer: one of json, regex, choice, grammar, json_object, structural_tag; whitespace options."
    )
    thinking_token_budget: int | None = Field(None, description="Most tokens of reasoning; then its end is forced.")
    priority: Int64 = Field(0, description="Lower goes first; needs --scheduling-policy priority.")
    request_id: str | None = Field(None, min_length=1, max_length=256, description="Part of the answer's id.")
    session_id: str | None = Field(None, description="For routers; not used here.")
    cache_salt: str | None = Field(None, min_length=1, max_length=1024, description="Prefixes are shared only under the same salt.")
    return_tokens_as_token_ids: bool | None = Field(None, description="Log-probabilities name tokens as token_id:N.")
    return_token_ids: bool = Field(False, description="Tell the ids of prompt and answer.")
    vllm_xargs: dict[str, Argument] = Field(default_factory=dict, description="Arguments of extensions; there are none, so none is taken.")
    user: str | None = Field(None, description="Not used.")

    @model_validator(mode="after")
    def _check(self) -> "GenerationRequest":
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options needs stream=true", parameter="stream_options")
        if self.stream and self.prompt_logprobs is not None:
            raise RequestError("prompt_logprobs cannot be had with stream=true", parameter="prompt_logprobs")
        for name in self.vllm_xargs:
            raise RequestError(f"vllm_xargs: nothing in this server reads {name!r}", f"leave {name} away", "vllm_xargs")
        read_form(self.response_format, self.structured_outputs)
        return self


class ChatRequest(GenerationRequest, Conversation):
    """/v1/chat/completions."""

    later: ClassVar[dict[str, tuple[Any, ...]]] = {
        **GenerationRequest.later,
        **Conversation.later,
        "functions": (),
        "function_call": ("none", "auto"),
        "audio": (),
        "modalities": (["text"],),
        "web_search_options": (),
    }

    max_tokens: int | None = Field(None, description="The older name of max_completion_tokens.")
    max_completion_tokens: int | None = Field(None, description="Default: what the context has left.")
    logprobs: bool = False
    top_logprobs: int = Field(0, description="Rivals of each token, at most --max-logprobs; -1: all.")
    echo: bool = Field(False, description="Begin the answer with the last message, if it has the answer's role.")
    documents: list[dict[str, Any]] | None = Field(None, description="Documents for a template that takes them.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="A variable of the template."
    )
    include_reasoning: bool = Field(True, description="Tell the reasoning, apart from the content.")
    tool_choice: Any = Field(
        None, description="Whether the model calls; default auto, if there are tools.", json_schema_extra=CHOICE_SCHEMA
    )
    parallel_tool_calls: bool = Field(True, description="Whether an answer may hold several calls.")
    return_prompt_text: bool = Field(False, description="Tell what the template made of the conversation.")

    @property
    def offer(self) -> Offer:
        """What the model may call."""
        return read_offer(self.tools, self.tool_choice, self.parallel_tool_calls)

    @model_validator(mode="after")
    def _check_chat(self) -> "ChatRequest":
        read_offer(self.tools, self.tool_choice, self.parallel_tool_calls)
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs=true", parameter="top_logprobs")
        if self.logprob_token_ids is not None and not self.logprobs:
            raise RequestError("logprob_token_ids needs logprobs=true", parameter="logprob_token_ids")
        return self


class BatchChatRequest(ChatRequest):
    """/v1/chat/completions/batch: several conversations with the same parameters."""

    messages: list[Annotated[list[dict[str, Any]], Field(min_length=1)]] = Field(min_length=1)  # type: ignore[assignment]

    @model_validator(mode="after")
    def _check_batch(self) -> "BatchChatRequest":
        for name in ("stream", "use_beam_search"):
            if getattr(self, name):
                raise RequestError(f"a batch of conversations has no {name}", "send each to /v1/chat/completions", name)
        return self

    def requests(self) -> list[ChatRequest]:
        """One request for each conversation."""
        values = {name: getattr(self, name) for name in ChatRequest.model_fields}
        return [
            ChatRequest.model_construct(_fields_set=set(self.model_fields_set), **{**values, "messages": conversation})  # type: ignore[arg-type]
            for conversation in self.messages
        ]


class CompletionRequest(GenerationRequest):
    """/v1/completions."""

    later: ClassVar[dict[str, tuple[Any, ...]]] = GenerationRequest.later | {"suffix": ("",)}

    # its kinds are told apart where prompts are read: pydantic would try each on every element
    prompt: Any = Field(None, description="Text, token ids, or a list of either.", json_schema_extra={"anyOf": _PROMPTS})
    max_tokens: int = Field(16, description="0 with echo or prompt_logprobs: nothing is generated.")
    best_of: int | None = Field(None, description="1 or n: all that is generated is returned.")
    echo: bool = Field(False, description="Begin the answer with the prompt.")
    logprobs: int | None = Field(None, description="Likelihood of each token, with so many rivals; -1: all.")
    add_special_tokens: bool = Field(True, description="Put special tokens around a text prompt, as the tokenizer does.")

    @model_validator(mode="after")
    def _check_completion(self) -> "CompletionRequest":
        if self.best_of not in (None, 1, self.n):
            raise unavailable("best_of", "best_of other than 1 or n")
        if self.logprob_token_ids is not None and self.logprobs is None:
            raise RequestError("logprob_token_ids needs logprobs", parameter="logprob_token_ids")
        return self
