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

    def output(self, name: str, output: RequestOutput, is_delta: bool) -> None:
        """What a request gave: all of it, or the newest piece."""
        if not self.logs_outputs or (is_delta and not self._logs_deltas):
            return
        for each in output.outputs:
            what = "piece" if is_delta else "answer"
            logger.info("%s %d of request %s: %r, finish_reason %s", what, each.index, name, each.text[: self._length], each.finish_reason)
            logger.debug("%s %d of request %s: token ids %s", what, each.index, name, each.token_ids[: self._length])


def _spelled(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items()) or "as usual"
