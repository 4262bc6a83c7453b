"""What is refused when it arrives, since waiting would not help."""

from octavo.config.config import Config
from octavo.errors import RequestError
from octavo.kvcache.cache import Cache
from octavo.scheduler.limits.cache_blocks import least_at_once
from octavo.scheduler.request import Request


def check_size(request: Request, config: Config, cache: Cache) -> None:
    """Raise RequestError for a request that is too long for the model, for a step, or for the cache even when it is alone."""
    prompt, longest, scheduler = request.num_prompt, config.model.max_model_len, config.scheduler
    if prompt == 0:
        raise RequestError("the prompt is empty", parameter="prompt")
    if prompt > longest or (prompt == longest and request.sampling.max_tokens != 0):
        raise RequestError(
            f"the prompt has {prompt} tokens, and max_model_len {longest} leaves no room for an answer",
            f"send at most {longest - 1} tokens, or serve with a larger --max-model-len",
            parameter="prompt",
        )
    if not scheduler.chunked_prefill and prompt > scheduler.max_num_batched_tokens:
        raise RequestError(
            f"the prompt has {prompt} tokens, and a step computes at most {scheduler.max_num_batched_tokens}",
            "enable chunked prefill, or raise --max-num-batched-tokens",
            parameter="prompt",
        )
    if not cache.fits(request.most_computed, least_at_once(request, scheduler.chunked_prefill)):
        raise RequestError(
            f"the request can grow to {request.limit} tokens, which needs more blocks than the cache has",
            "lower max_tokens, shorten the prompt, or serve with a larger cache",
            parameter="max_tokens",
        )
