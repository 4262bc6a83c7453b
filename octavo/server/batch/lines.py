"""Lines of a batch file: each a request with an id of its own, or a fault that becomes its answer. None is passed over.

The format is OpenAI's: {"custom_id": ..., "method": "POST", "url": "/v1/chat/completions", "body": {...}}, one a line.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import ConfigError
from octavo.server.errors import ErrorInfo

PATHS = ("/v1/chat/completions", "/v1/completions")
# what vLLM takes besides, and octavo does not yet: the end of a url -> the feature
LATER = {
    "/embeddings": "embeddings",
    "/score": "scores",
    "/rerank": "reranking",
    "/audio/transcriptions": "transcription",
    "/audio/translations": "translation of speech",
    "/responses": "the Responses API",
    "/moderations": "moderation",
}


@dataclass(frozen=True, slots=True)
class Line:
    """number: among the lines that are not blank, from 0. body: JSON as it stands in the file. fault: why there is no such request."""

    number: int
    custom_id: str | None
    path: str = ""
    body: bytes = b""
    fault: ErrorInfo | None = None


class _Request(msgspec.Struct):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class _Body(msgspec.Struct):
    stream: Any = None


_decode = msgspec.json.Decoder(_Request).decode
_decode_body = msgspec.json.Decoder(_Body).decode


class BatchFile:
    """A file of lines. digest: of the whole of it, so that answers are never mixed with those to another file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.total = 0
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                for raw in file:
                    digest.update(raw)
                    self.total += bool(raw.strip())
        except OSError as error:
            raise ConfigError(f"the batch file {path} cannot be read: {error.strerror}", "-i takes a file, or an http address") from None
        self.digest = digest.hexdigest()

    def lines(self) -> Iterator[Line]:
        """All lines in order. Of several with one custom_id the first is the request, the others are faults."""
        first: dict[str, int] = {}
        with self._path.open("rb") as file:
            number = 0
            for row, raw in enumerate(file, 1):
                text = raw.removeprefix(b"\xef\xbb\xbf").strip() if row == 1 else raw.strip()
                if not raw.strip():
                    continue
                line = parse(number, text)
                if line.custom_id is not None and (earlier := first.setdefault(line.custom_id, row)) != row:
                    line = _faulty(number, line.custom_id, f"custom_id {line.custom_id!r} stands in line {earlier} already", "custom_id")
                yield line
                number += 1


def parse(number: int, text: bytes) -> Line:
    """One line; whatever is wrong with it becomes its fault."""
    try:
        request = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _faulty(number, _custom_id(text), f"the line is no request: {error}", None)
    name = request.custom_id
    if not name:
        return _faulty(number, None, "custom_id is empty", "custom_id")
    if request.method.upper() != "POST":
        return _faulty(number, name, f"method must be POST, not {request.method!r}", "method")
    if request.url not in PATHS:
        return _faulty(number, name, _unknown_url(request.url), "url")
    body = bytes(request.body)
    if _wants_stream(body):
        return _faulty(number, name, "a line of a batch has one answer: leave stream away", "stream")
    return Line(number, name, request.url, body)


def _wants_stream(body: bytes) -> bool:
    try:
        return _decode_body(body).stream is True
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # the endpoint says what is wrong with it


def _unknown_url(url: str) -> str:
    known = f"the urls are {' and '.join(PATHS)}"
    for end, feature in LATER.items():
        if url.endswith(end):
            return f"{feature} ({url}) are not available in this version of octavo; {known}"
    return f"there is no url {url!r} for lines of a batch; {known}"


def _custom_id(text: bytes) -> str | None:
    """The id of a line that is no request otherwise."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("custom_id")
        return msgspec.json.decode(found, type=str) or None if found is not None else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _faulty(number: int, custom_id: str | None, message: str, parameter: str | None) -> Line:
    return Line(number, custom_id, fault=ErrorInfo(message, "BadRequestError", parameter, 400))
