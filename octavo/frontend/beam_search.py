"""Beam search: the sequences of highest probability, grown one token a step from the log-probabilities of plain requests.

The rules are those of transformers' generate(num_beams=..., early_stopping=False): of the K = max(2, 1 + number of end tokens) * width best
continuations the first `width` may end a sequence and the first `width` that do not end go on; a finished sequence scores
sum(log p) / length ** length_penalty, length counting generated tokens with the end token; the search is over when no running
sequence can beat the worst of `width` finished ones at its present length.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.protocol.outputs import BeamSearchOutput, BeamSearchSequence, CompletionOutput, LogprobsOnePosition, RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams
from octavo.text.tokenizer import Tokenizer


@dataclass(slots=True)
class _Beam:
    tokens: list[int] = field(default_factory=list)  # generated
    log_probability: float = 0.0
    logprobs: list[LogprobsOnePosition] = field(default_factory=list)
    finish_reason: str | None = None


class BeamSearch:
    """The search over one prompt. Each round: ask for the next token of every sequence of `running()`, then `advance`."""

    def __init__(self, prompt_token_ids: Sequence[int], params: BeamSearchParams, eos_token_ids: Sequence[int], max_tokens: int) -> None:
        """max_tokens: the smaller of what params ask and the context allows."""
        self._prompt = list(prompt_token_ids)
        self.params = params
        self._ends = frozenset(() if params.ignore_eos else eos_token_ids)
        self._max_tokens = max_tokens
        self._width = params.beam_width
        self._running = [_Beam()]
        self._finished: list[tuple[float, _Beam]] = []  # best first, at most width
        self.is_done = False

    @property
    def num_candidates(self) -> int:
        """K: how many continuations are looked at, of all sequences together."""
        return max(2, 1 + len(self._ends)) * self._width

    def running(self) -> list[list[int]]:
        """Prompt and generated tokens of each sequence that goes on."""
        return [self._prompt + beam.tokens for beam in self._running]

    def sampling_params(self, vocabulary: int) -> SamplingParams:
        """Parameters of the plain requests of a round."""
        return SamplingParams(
            max_tokens=1,
            temperature=self.params.temperature,
            logprobs=min(self.num_candidates, vocabulary),
            ignore_eos=True,
            detokenize=False,
            allowed_token_ids=self.params.allowed_token_ids,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def advance(self, answers: Sequence[LogprobsOnePosition]) -> None:
        """Take the next position's log-probabilities of each running sequence, in order."""
        best = self._best_continuations(answers)
        length = len(best[0].tokens)
        is_last = length >= self._max_tokens
        ended = [beam for beam in best[: self._width] if is_last or beam.tokens[-1] in self._ends]
        for beam in ended:
            beam.finish_reason = "stop" if beam.tokens[-1] in self._ends else "length"
            self._finished.append((self._score(beam, length), beam))
        self._finished.sort(key=lambda scored: -scored[0])
        del self._finished[self._width :]
        self._running = [] if is_last else [beam for beam in best if beam.tokens[-1] not in self._ends][: self._width]
        self.is_done = not self._running or not self._can_improve(length)

    def _best_continuations(self, answers: Sequence[LogprobsOnePosition]) -> list[_Beam]:
        allowed = None if self.params.allowed_token_ids is None else set(self.params.allowed_token_ids)
        scored = [
            (beam.log_probability + entry.logprob, place, token, position)
            for place, (beam, position) in enumerate(zip(self._running, answers, strict=True))
            for token, entry in position.items()
            if allowed is None or token in allowed
        ]
        scored.sort(key=lambda s: (-s[0], s[1], s[2]))
        return [
            _Beam([*self._running[place].tokens, token], score, [*self._running[place].logprobs, position])
            for score, place, token, position in scored[: self.num_candidates]
        ]

    def _can_improve(self, length: int) -> bool:
        if len(self._finished) < self._width:
            return True
        return self._score(self._running[0], length) > self._finished[-1][0]

    def _score(self, beam: _Beam, length: int) -> float:
        """A penalty may be as large or as small as a client likes: what no float holds counts as the largest or the smallest."""
        try:
            divisor: float = length**self.params.length_penalty
        except OverflowError:
            divisor = sys.float_info.max
        return beam.log_probability / max(divisor, sys.float_info.min)

    def result(self, tokenizer: Tokenizer | None) -> BeamSearchOutput:
        """The best sequences, best first; their tokens begin with the prompt."""
        sequences = []
        for _, beam in self._finished:
            is_end = beam.finish_reason == "stop"
            shown = beam.tokens[:-1] if is_end and not self.params.include_stop_str_in_output else beam.tokens
            tokens = self._prompt + shown
            text = None if tokenizer is None else tokenizer.decode(tokens, skip_special_tokens=self.params.skip_special_tokens)
            sequences.append(
                BeamSearchSequence(
                    tokens=tokens,
                    cum_logprob=beam.log_probability,
                    text=text,
                    finish_reason=beam.finish_reason,
                    stop_reason=beam.tokens[-1] if is_end else None,
                    logprobs=beam.logprobs,
                )
            )
        return BeamSearchOutput(sequences)


def as_request_output(
    request_id: str, prompt: str | None, prompt_token_ids: list[int], found: BeamSearchOutput, tokenizer: Tokenizer | None
) -> RequestOutput:
    """A beam search's result in the form of any other request's."""
    outputs = []
    before = "" if tokenizer is None else tokenizer.decode(prompt_token_ids, skip_special_tokens=True)
    for index, sequence in enumerate(found.sequences):
        generated = sequence.tokens[len(prompt_token_ids) :]
        text = sequence.text or ""
        if text.startswith(before):
            text = text[len(before) :]
        elif tokenizer is not None:
            text = tokenizer.decode(generated, skip_special_tokens=True)
        outputs.append(
            CompletionOutput(
                index=index,
                text=text,
                token_ids=generated,
                cumulative_logprob=sequence.cum_logprob,
                logprobs=sequence.logprobs[: len(generated)],
                finish_reason=sequence.finish_reason,
                stop_reason=sequence.stop_reason,
            )
        )
    return RequestOutput(request_id, prompt, prompt_token_ids, None, outputs, finished=True)
