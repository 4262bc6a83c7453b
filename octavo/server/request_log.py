"""The request log: --enable-log-requests and --enable-log-outputs, one line each for what came and for what was answered."""

import logging
from typing import Any

import msgspec

from octavo.config.options import ServerOptions
from octavo.frontend.inputs import EncodedPrompt
from octavo.logging import get_logger
from octavo.protocol.outputs import RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams, SamplingParams

logger = get_logger(__name__)


class RequestLog:
    """INFO has ids, parameters, texts of answers and their ends; DEBUG has prompts and token ids as well."""

    def __init__(self, options: ServerOptions) -> None:
        self.logs_requests = options.enable_log_requests
        self.logs_outputs = options.enable_log_requests and options.enable_log_outputs
        self._logs_deltas = options.enable_log_deltas
        self._length = options.max_log_len  # None: all

    def request(self, name: str, params: SamplingParams | BeamSearchParams, prompt: EncodedPrompt) -> None:
        """A request that passed its checks."""
        if not self.logs_requests:
            return
        logger.info("request %s: %d prompt tokens, parameters %s", name, len(prompt.token_ids), _spelled(msgspec.to_builtins(params)))
        if logger.isEnabledFor(logging.DEBUG):
            text = None if prompt.text is None else prompt.text[: self._length]
            logger.debug("request %s: prompt %r, token ids %s", name, text, prompt.token_ids[: self._length])

    def answers(self, name: str, is_streamed: bool) -> "AnswerLog":
        """Where the outputs of a request go."""
        return AnswerLog(name, self.logs_outputs, is_streamed and self._logs_deltas, self._length)


class AnswerLog:
    """The answers of one request: each piece as it comes, or each answer when it is whole."""

    def __init__(self, name: str, is_on: bool, logs_pieces: bool, length: int | None) -> None:
        self._name = name
        self._is_on = is_on
        self._logs_pieces = logs_pieces
        self._length = length
        self._texts: dict[tuple[int, int], str] = {}
        self._token_ids: dict[tuple[int, int], list[int]] = {}

    def add(self, output: RequestOutput, prompt: int = 0) -> None:
        """What has come. prompt: which of the request's prompts it is for."""
        if not self._is_on:
            return
        for each in output.outputs:
            place = prompt, each.index
            self._texts[place] = self._texts.get(place, "") + each.text
            self._token_ids[place] = self._token_ids.get(place, []) + each.token_ids
            if self._logs_pieces or each.finish_reason is not None:
                text, token_ids = self._texts.pop(place)[: self._length], self._token_ids.pop(place)[: self._length]
                what = f"{'piece' if self._logs_pieces else 'answer'} {each.index} of request {self._name}"
                logger.info("%s: %r, finish_reason %s", what, text, each.finish_reason)
                logger.debug("%s: token ids %s", what, token_ids)


def _spelled(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items()) or "as usual"
