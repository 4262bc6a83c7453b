"""Sequence: one of a request's n answers while it grows: tokens in, text out, or what the text says; cut at a stop string."""

from octavo.frontend.logprobs import LogprobReader, new_logprobs, num_top
from octavo.frontend.reading import TOOL_CALLS, Reader, Reading, reading_of
from octavo.parsing.events import join
from octavo.protocol.messages import EngineOutput, FinishReason
from octavo.protocol.outputs import CompletionOutput, LogprobsOnePosition
from octavo.protocol.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer


class Sequence:
    """What one child request has given, and how much of it was told."""

    def __init__(
        self,
        index: int,
        engine_id: str,
        params: SamplingParams,
        tokenizer: Tokenizer | None,
        prompt_ids: list[int],
        reader: Reader | None = None,
    ) -> None:
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
        self._told_tokens = 0
        self._told_parts = 0
        self._told_events = 0
        self._shows_stop_token = params.include_stop_str_in_output
        self._reading: Reading | None = None
        self._reader: LogprobReader | None = None
        if tokenizer is not None and params.detokenize:
            self._reading = reading_of(tokenizer, params, prompt_ids, reader)
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

    @property
    def label(self) -> str | None:
        """Why it ended, as clients read it."""
        if self.finish_reason is FinishReason.STOP and self._reading is not None and self._reading.has_calls:
            return TOOL_CALLS
        return None if self.finish_reason is None else self.finish_reason.label

    def take(self, output: EngineOutput) -> bool:
        """Add what a step gave. True if the engine must be told to stop, because a stop string came, or a call too many."""
        kept = self._add_text(output)
        self.token_ids += output.token_ids[:kept]
        if self._reader is not None and output.logprobs is not None and self.logprobs is not None:
            positions, _ = self._reader.read(output.logprobs)
            positions = positions[:kept]
            self.logprobs.extend(positions)
            own = zip(output.token_ids, positions, strict=False)
            self.cumulative_logprob = (self.cumulative_logprob or 0.0) + sum(position[token].logprob for token, position in own)
        if self._reading is not None and self._reading.is_ended:
            self.finish_reason, self.stop_reason = FinishReason.STOP, self._reading.stop
            return output.finish_reason is None
        self.finish_reason, self.stop_reason = output.finish_reason, output.stop_reason
        return False

    def end(self, reason: FinishReason) -> None:
        """End it from outside: held-back text is told, since nothing more comes."""
        if self._reading is not None:
            self._reading.finish(is_cut_off=True)
        self.finish_reason = reason

    def tell(self, only_new: bool) -> CompletionOutput:
        """The sequence as an output: whole, or what was not told yet."""
        tokens_from = self._told_tokens if only_new else 0
        self._told_tokens = len(self.token_ids)
        output = CompletionOutput(
            index=self.index,
            text="",
            token_ids=self.token_ids[tokens_from:],
            cumulative_logprob=self.cumulative_logprob,
            logprobs=None if self.logprobs is None else self.logprobs[tokens_from:],
            finish_reason=self.label,
            stop_reason=self.stop_reason,
        )
        if self._reading is not None:
            self._tell_text(self._reading, output, only_new)
        return output

    def _tell_text(self, reading: Reading, output: CompletionOutput, only_new: bool) -> None:
        output.text = "".join(reading.parts[self._told_parts if only_new else 0 :])
        if not only_new:
            reading.parts = [output.text]
        self._told_parts = len(reading.parts)
        if reading.events is not None:
            output.events = join(reading.events[self._told_events if only_new else 0 :])
            output.num_reasoning_tokens = reading.num_reasoning_tokens
            if not only_new:
                reading.events = list(output.events)
            self._told_events = len(reading.events)

    def _add_text(self, output: EngineOutput) -> int:
        """Turn new tokens into text; the number of tokens that count, which is less than all if a stop string came before the end."""
        ids, reading = output.token_ids, self._reading
        if reading is None:
            return len(ids)
        hides_last = output.finish_reason is FinishReason.STOP and not (self._shows_stop_token or output.is_complete)
        for place, token in enumerate(ids):
            reading.add(token, is_hidden=hides_last and place == len(ids) - 1)
            if reading.is_ended:
                return place + 1
        if output.finish_reason is not None:
            reading.finish(is_cut_off=output.finish_reason is not FinishReason.STOP)
        return len(ids)
