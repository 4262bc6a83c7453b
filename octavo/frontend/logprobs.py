"""Log-probabilities: columns from the engine become one dictionary a position, with each token's text."""

import codecs
from typing import Any

import numpy as np

from octavo.protocol.columns import unpack, unpack_floats
from octavo.protocol.outputs import FlatLogprobs, Logprob, LogprobsOnePosition
from octavo.protocol.sampling_params import SamplingParams
from octavo.protocol.step import LogprobColumns
from octavo.text.tokenizer import Tokenizer

TORN = "\ufffd"


class TokenTexts:
    """Texts of single tokens in one running sequence.

    A character whose bytes are spread over several tokens belongs to the last of them and the earlier ones have no text, so that the texts
    of the sequence's own tokens, put together, are its text.
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._open = b""  # the bytes of a character that is not complete yet

    def text(self, token_id: int) -> str | None:
        """The text of a token that stands, or might stand, next."""
        if self._tokenizer is None:
            return None
        text = self._tokenizer.token_text(token_id)
        if TORN not in text:
            return text
        return _decode(self._open + self._tokenizer.token_bytes(token_id))[0]

    def advance(self, token_id: int) -> None:
        """That token is the one that stands there."""
        if self._tokenizer is None:
            return
        if TORN in self._tokenizer.token_text(token_id):
            self._open = _decode(self._open + self._tokenizer.token_bytes(token_id))[1]
        else:
            self._open = b""


class LogprobReader:
    """Reads the columns of one sequence, or of one prompt, in order."""

    def __init__(self, tokenizer: Tokenizer | None, num_top: int) -> None:
        self._texts = TokenTexts(tokenizer)
        self._num_top = num_top  # entries after the first that are the most likely tokens, in order; any others were asked for by id

    def read(self, columns: LogprobColumns) -> tuple[list[LogprobsOnePosition], float]:
        """One dictionary a position, and the sum of the log-probabilities of the tokens that stand there."""
        ids, values = unpack(columns.ids).tolist(), unpack_floats(columns.values).astype(np.float64).tolist()
        ranks = unpack(columns.ranks).tolist()
        positions: list[LogprobsOnePosition] = []
        total, at = 0.0, 0
        for count, rank in zip(unpack(columns.counts).tolist(), ranks, strict=True):
            own = ids[at]
            position = {own: Logprob(values[at], rank, self._texts.text(own))}
            for place in range(1, count):
                token = ids[at + place]
                if token not in position:
                    position[token] = Logprob(values[at + place], place if place <= self._num_top else None, self._texts.text(token))
            self._texts.advance(own)
            total += values[at]
            positions.append(position)
            at += count
        return positions, total


def new_logprobs(params: SamplingParams) -> Any:
    """What a request's log-probabilities are gathered in: a list, or what reads like one."""
    return FlatLogprobs() if params.flat_logprobs else []


def num_top(params: SamplingParams, asked: int | None) -> int:
    """How many of a position's entries are there by rank."""
    return 2**31 if asked == -1 else asked or 0


def _decode(data: bytes) -> tuple[str, bytes]:
    """The complete characters in `data`, and the bytes at its end that begin another one."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = decoder.decode(data)
    return text, decoder.getstate()[0]
