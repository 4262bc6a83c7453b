"""When a request has said enough: asked once a token, in a fixed order."""

from array import array

from octavo.protocol.messages import EngineRequest, FinishReason
from octavo.protocol.sampling_params import RepetitionDetectionParams, SamplingParams

Verdict = tuple[FinishReason, int | None]  # the reason, and the stop token where one of stop_token_ids was it


class StopRules:
    """min_tokens guards the stop tokens; then end-of-sequence, stop_token_ids, length, repetition."""

    __slots__ = ("_eos", "_guarded_until", "_limit", "_num_prompt", "_repetition", "_stop")

    def __init__(self, message: EngineRequest, sampling: SamplingParams, num_prompt: int, limit: int) -> None:
        self._eos = frozenset(message.eos_token_ids)
        self._stop = frozenset(sampling.stop_token_ids or ())
        self._guarded_until = num_prompt + sampling.min_tokens
        self._limit = limit
        self._num_prompt = num_prompt
        repetition = sampling.repetition_detection
        self._repetition = repetition if repetition is not None and repetition.max_pattern_size else None

    def verdict(self, tokens: "array[int]", known: int) -> Verdict | None:
        """None to go on. tokens: prompt and output, `known` of them."""
        is_free = known >= self._guarded_until
        if is_free:
            token = tokens[-1]
            if token in self._eos:
                return FinishReason.STOP, None
            if token in self._stop:
                return FinishReason.STOP, token
        if known >= self._limit:
            return FinishReason.LENGTH, None
        if is_free and self._repetition is not None and repeats(tokens[self._num_prompt :], self._repetition):
            return FinishReason.REPETITION, None
        return None


def repeats(output: "array[int]", rule: RepetitionDetectionParams) -> bool:
    """Whether the output ends with a pattern of one of the rule's sizes, min_count times in a row."""
    for size in range(rule.min_pattern_size, rule.max_pattern_size + 1):
        length = size * rule.min_count
        if length > len(output):
            return False
        if output[-length:-size] == output[len(output) - length + size :]:
            return True
    return False
