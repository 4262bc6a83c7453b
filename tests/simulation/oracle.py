"""The oracle: what a request must be answered when it is alone, computed without an engine."""

from octavo.protocol.messages import EngineRequest, FinishReason
from tests.simulation.constraints import Place
from tests.simulation.echo_worker import START, ints, mix, sample, sample_of


def answer(request: EngineRequest, max_model_len: int) -> tuple[list[int], FinishReason, int | None]:
    """(tokens, finish reason, stop reason)."""
    sampling = request.sampling
    assert sampling is not None
    prompt = ints(request.token_ids)
    digest = START
    for token in prompt:
        digest = mix(digest, token)
    output: list[int] = []
    if sampling.max_tokens == 0:
        return output, FinishReason.LENGTH, None
    asked = sampling.structured_outputs
    place = Place(int(asked.regex or "")) if asked is not None else None
    while True:
        token = sample(digest, request.seed)
        if place is not None:
            token = place.allowed[0] if place.is_settled else sample_of(place.allowed, digest, request.seed)
            place.accept(token)
        digest = mix(digest, token)
        output.append(token)
        may_stop = len(output) >= sampling.min_tokens
        if may_stop and token in request.eos_token_ids:
            return output, FinishReason.STOP, None
        if may_stop and token in (sampling.stop_token_ids or []):
            return output, FinishReason.STOP, token
        if place is not None and place.is_complete:
            return output, FinishReason.STOP, None
        if len(output) == sampling.max_tokens or len(prompt) + len(output) >= max_model_len:
            return output, FinishReason.LENGTH, None
        rule = sampling.repetition_detection
        if may_stop and rule is not None:
            for size in range(rule.min_pattern_size, rule.max_pattern_size + 1):
                pattern = output[-size:]
                if len(output) >= size * rule.min_count and output[-size * rule.min_count :] == pattern * rule.min_count:
                    return output, FinishReason.REPETITION, None
