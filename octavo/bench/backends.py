"""Backends: what a request looks like to each kind of endpoint."""

from typing import Any

from octavo.bench.options import ServeOptions
from octavo.bench.sample import Sample
from octavo.errors import ConfigError

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")


def endpoint(options: ServeOptions) -> str:
    """The path. Raises ConfigError if it is not one that the backend speaks to."""
    is_chat = options.backend == "openai-chat"
    path = CHAT if is_chat and options.endpoint == COMPLETIONS else options.endpoint
    ending = "chat/completions" if is_chat else "completions"
    if not path.endswith(ending) or path.endswith("chat/completions") != is_chat:
        raise ConfigError(f"--backend {options.backend} needs an --endpoint that ends in {ending}, and {path} does not")
    return path if path.startswith("/") else "/" + path


def body(options: ServeOptions, model: str, sample: Sample) -> dict[str, Any]:
    """The JSON of one request; --extra-body has the last word."""
    fields: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    if options.backend == "openai-chat":
        fields |= {"messages": [{"role": "user", "content": sample.prompt}], "max_completion_tokens": sample.num_output}
        if options.logprobs is not None:
            fields |= {"logprobs": True, "top_logprobs": options.logprobs}
    else:
        fields |= {"prompt": sample.prompt, "max_tokens": sample.num_output}
        if options.logprobs is not None:
            fields["logprobs"] = options.logprobs
    fields |= {name: getattr(options, name) for name in SAMPLING if getattr(options, name) is not None}
    if options.ignore_eos:
        fields["ignore_eos"] = True
    if options.use_beam_search:
        fields["use_beam_search"] = True
    return fields | options.extra_body
