"""Streams: where an async caller reads the outputs of one request; what it does not read in time is merged, never queued."""

import asyncio
from collections.abc import Callable

from octavo.errors import GenerationError
from octavo.protocol.outputs import CompletionOutput, RequestOutput
from octavo.protocol.sampling_params import RequestOutputKind


class RequestStream:
    """An async iterator of RequestOutputs for one reader. Close it (aclose) to end the request early."""

    def __init__(self, kind: RequestOutputKind, close: Callable[[], None]) -> None:
        self._is_delta = kind is RequestOutputKind.DELTA
        self._close: Callable[[], None] | None = close
        self._pending: RequestOutput | None = None
        self._error: Exception | None = None
        self._is_over = False
        self._arrived = asyncio.Event()

    def put(self, output: RequestOutput) -> None:
        self._pending = output if self._pending is None else merged(self._pending, output, self._is_delta)
        if output.finished:
            self._close = None
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        self._error, self._close = error, None
        self._arrived.set()

    def __aiter__(self) -> "RequestStream":
        return self

    async def __anext__(self) -> RequestOutput:
        """The next output. Raises GenerationError if the engine failed on this request, EngineDeadError if it is no more."""
        while self._pending is None:
            if self._is_over:
                raise StopAsyncIteration
            if self._error is not None:
                self._is_over = True
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        output, self._pending = self._pending, None
        self._is_over = output.finished
        if output.error is not None:
            raise GenerationError(output.error)
        return output

    async def aclose(self) -> None:
        """End the request if it goes on. Can be called twice."""
        self._is_over = True
        close, self._close = self._close, None
        if close is not None:
            close()


def merged(earlier: RequestOutput, later: RequestOutput, is_delta: bool) -> RequestOutput:
    """Two outputs of a request as one."""
    by_index = {o.index: o for o in earlier.outputs}
    for output in later.outputs:
        first = by_index.get(output.index)
        by_index[output.index] = _joined(first, output) if is_delta and first is not None else output
    later.outputs = [by_index[index] for index in sorted(by_index)]
    if later.prompt_logprobs is None:
        later.prompt_logprobs = earlier.prompt_logprobs
    return later


def _joined(first: CompletionOutput, second: CompletionOutput) -> CompletionOutput:
    second.text = first.text + second.text
    second.token_ids = first.token_ids + second.token_ids
    if first.logprobs is not None and second.logprobs is not None:
        first.logprobs.extend(second.logprobs)
        second.logprobs = first.logprobs
    return second
