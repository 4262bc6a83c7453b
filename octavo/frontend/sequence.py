"""Sequence: one of a request's n answers while it grows: tokens in, text out, cut at a stop string."""

from octavo.frontend.logprobs import LogprobReader, new_logprobs, num_top
from octavo.protocol.messages import EngineOutput, FinishReason
from octavo.protocol.outputs import CompletionOutput, LogprobsOnePosition
from octavo.protocol.sampling_params import SamplingParams
from octavo.text.detokenizer import Detokenizer
from octavo.text.stop_strings import StopStrings
from octavo.text.tokenizer import Tokenizer


class Sequence:
    """What one child request has given, and how much of it was told."""

    def __init__(self, index: int, engine_id: str, params: SamplingParams, tokenizer: Tokenizer | None, prompt_ids: list[int]) -> None:
        self.index = index
        self.engine_id = engine_id
        self.is_sent = False  # the engine knows of it
        self.is_told = False  # its end was told
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.logprobs: list[LogprobsOnePosition] | None = None
        self.cumulative_logprob: float | None = None
        self.scheduled_s: float | None = None
        self.queued_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.num_preemptions = 0
        self.num_cached: int | None = None
        self._parts: list[str] = []
        self._told_tokens = 0
        self._told_parts = 0
        self._shows_stop_token = params.include_stop_str_in_output
        self._detokenizer: Detokenizer | None = None
        self._stops: StopStrings | None = None
        self._reader: LogprobReader | None = None
        if tokenizer is not None and params.detokenize:
            self._detokenizer = Detokenizer(
                tokenizer,
                prompt_ids,
                skip_special_tokens=params.skip_special_tokens,
                spaces_between_special_tokens=params.spaces_between_special_tokens,
            )
            if params.stop:
                self._stops = StopStrings(params.stop, include_in_output=params.include_stop_str_in_output, min_tokens=params.min_tokens)
        if params.logprobs is not None or params.logprob_token_ids is not None:
            self._reader = LogprobReader(tokenizer if params.detokenize else None, num_top(params, params.logprobs))
            self.logprobs, self.cumulative_logprob = new_logprobs(params), 0.0

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def num_untold(self) -> int:
        return len(self.token_ids) - self._told_tokens

    @property
    def has_told(self) -> bool:
        return self._told_tokens > 0

    def take(self, output: EngineOutput) -> bool:
        """Add what a step gave. True if the engine must be told to stop, because a stop string came."""
        kept = self._add_text(output)
        self.token_ids += output.token_ids[:kept]
        if self._reader is not None and output.logprobs is not None and self.logprobs is not None:
            positions, _ = self._reader.read(output.logprobs)
            positions = positions[:kept]
            self.logprobs.extend(positions)
            own = zip(output.token_ids, positions, strict=False)
            self.cumulative_logprob = (self.cumulative_logprob or 0.0) + sum(position[token].logprob for token, position in own)
        if self._stops is not None and self._stops.match is not None:
            self.finish_reason, self.stop_reason = FinishReason.STOP, self._stops.match.stop
            return output.finish_reason is None
        self.finish_reason, self.stop_reason = output.finish_reason, output.stop_reason
        return False

    def end(self, reason: FinishReason) -> None:
        """End it from outside: held-back text is told, since nothing more comes."""
        if self._detokenizer is not None:
            rest = self._detokenizer.flush()
            self._parts.append(self._stops.finish(rest) if self._stops is not None else rest)
        self.finish_reason = reason

    def tell(self, only_new: bool) -> CompletionOutput:
        """The sequence as an output: whole, or what was not told yet."""
        tokens_from = self._told_tokens if only_new else 0
        text = "".join(self._parts[self._told_parts if only_new else 0 :])
        self._told_tokens, self._told_parts = len(self.token_ids), len(self._parts)
        if not only_new:
            self._parts, self._told_parts = [text], 1
        return CompletionOutput(
            index=self.index,
            text=text,
            token_ids=self.token_ids[tokens_from:],
            cumulative_logprob=self.cumulative_logprob,
            logprobs=None if self.logprobs is None else self.logprobs[tokens_from:],
            finish_reason=None if self.finish_reason is None else self.finish_reason.label,
            stop_reason=self.stop_reason,
        )

    def _add_text(self, output: EngineOutput) -> int:
        """Turn new tokens into text; the number of tokens that count, which is less than all if a stop string came before the end."""
        ids, detokenizer, stops = output.token_ids, self._detokenizer, self._stops
        if detokenizer is None:
            return len(ids)
        hides_last = output.finish_reason is FinishReason.STOP and not self._shows_stop_token
        for place, token in enumerate(ids):
            is_hidden = hides_last and place == len(ids) - 1
            piece = "" if is_hidden else detokenizer.add(token)
            if stops is not None:
                piece = stops.add(piece)
            self._parts.append(piece)
            if stops is not None and stops.match is not None:
                return place + 1
        if output.finish_reason is not None:
            rest = detokenizer.flush()
            self._parts.append(stops.finish(rest) if stops is not None else rest)
        return len(ids)
