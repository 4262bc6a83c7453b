"""Answer: the events of one streamed answer as they arrive: when each piece of text came, the counts, and what went wrong."""

from typing import Any

import msgspec

DONE = b"[DONE]"


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class Answer:
    """Fed with bytes; `times` has the moment of each chunk that carried something of the output."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.parts: list[str] = []
        self.num_prompt: int | None = None
        self.num_output: int | None = None
        self.error = ""
        self.is_done = False
        self._rest = b""

    def feed(self, status: int, data: bytes, when: float) -> None:
        self._rest += data
        if status != 200:  # an error is read whole, in finish()
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), when)

    def finish(self, status: int) -> None:
        """The answer has ended; `error` is set if it is not a whole one."""
        if status != 200:
            self.error = f"HTTP {status}: {_message(self._rest)}"
        elif not self.is_done and not self.error:
            self.error = "the answer ended without [DONE]" if self.times else "the answer holds no event"
        elif not self.times and not self.error and not self.num_output:
            self.error = "the answer holds no text"

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def _event(self, data: bytes, when: float) -> None:
        if data == DONE:
            self.is_done = True
            return
        try:
            chunk = _decoder.decode(data)
        except msgspec.DecodeError as error:
            self.error = self.error or f"an event cannot be read: {error}: {data[:200].decode(errors='replace')}"
            return
        if chunk.error is not None:
            self.error = self.error or f"error in the stream: {_told(chunk.error)}"
        if chunk.usage is not None:
            self.num_prompt = chunk.usage.prompt_tokens if chunk.usage.prompt_tokens is not None else self.num_prompt
            self.num_output = chunk.usage.completion_tokens if chunk.usage.completion_tokens is not None else self.num_output
        carries = False
        for choice in chunk.choices or ():
            delta = choice.delta
            text = choice.text if delta is None else (delta.reasoning or delta.reasoning_content or "") + (delta.content or "")
            if text:
                self.parts.append(text)
            # an empty text is a token without letters; the chunk that only names the role, or only the reason of the end, is none
            is_token = text is not None and choice.finish_reason is None if delta is None else bool(delta.tool_calls)
            carries = carries or bool(text) or is_token
        if carries:
            self.times.append(when)


def _message(body: bytes) -> str:
    try:
        value = msgspec.json.decode(body)
        return _told(value.get("error", value.get("detail", value)))
    except (msgspec.DecodeError, AttributeError):
        return body[:300].decode(errors="replace").strip()


def _told(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
