"""Generation config: what a model's makers recommend for sampling, and which tokens end a text."""

from typing import Any

# generation_config.json's key -> SamplingParams' field
_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}


def default_sampling(generation_config: dict[str, Any]) -> dict[str, Any]:
    """The fields of SamplingParams that a generation config sets. do_sample false does not make them greedy, as in vLLM."""
    return {field: generation_config[key] for key, field in _SAMPLING.items() if generation_config.get(key) is not None}


def end_tokens(*configs: dict[str, Any]) -> list[int]:
    """Every end-of-sequence id that any of the configs names, in order, once."""
    found: list[int] = []
    for config in configs:
        value = config.get("eos_token_id")
        for token in value if isinstance(value, list) else [value]:
            if isinstance(token, int) and token not in found:
                found.append(token)
    return found
