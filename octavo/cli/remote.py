"""Remote: a running OpenAI-compatible server as chat and complete see it, and its answer on the terminal as it comes."""

import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from octavo import environment
from octavo.cli.parser import Parser
from octavo.errors import OctavoError

_LOOK = "the server's log may say why"
_HINTS = {
    401: "pass --api-key, or set OCTAVO_API_KEY",
    403: "pass --api-key, or set OCTAVO_API_KEY",
    404: "an address usually ends in /v1; --model-name must be one that the server has",
    503: "the server is starting, full or shutting down: try again later",
}


class ServerError(OctavoError, RuntimeError):
    """The server refused, or could not be reached."""


class Server:
    """An OpenAI-compatible server at `url` (which ends in /v1)."""

    def __init__(self, url: str, api_key: str | None) -> None:
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # of the port
            is_address = False
        if not is_address:
            raise ServerError(f"--url {url!r} is not an http address", "for example http://127.0.0.1:8000/v1")
        self.url = url
        self._parts = parts
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})

    def models(self) -> list[str]:
        """The names that the server answers to. Raises ServerError if there are none."""
        try:
            names = [str(model["id"]) for model in json.load(self._request("GET", "/models"))["data"]]
        except (ValueError, KeyError, TypeError, http.client.HTTPException, OSError) as error:
            fact = f"{self.url}/models does not answer as an OpenAI-compatible server does: {type(error).__name__}"
            raise ServerError(fact, _HINTS[404]) from None
        if not names:
            raise ServerError(f"the server at {self.url} has no model", "give one with --model-name")
        return names

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of a streamed answer. Raises ServerError if it breaks off."""
        response = self._request("POST", path, body | {"stream": True})
        try:
            for line in response:
                text = line.decode(errors="replace").strip()
                if not text.startswith("data:"):
                    continue
                data = text.removeprefix("data:").strip()
                if data == "[DONE]":
                    return
                chunk = json.loads(data)
                if "error" in chunk:
                    raise ServerError(_message(chunk, "the server ended the stream"))
                yield chunk
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, ServerError):
                raise
            raise ServerError(f"the answer broke off: {error!r}", _LOOK) from None
        finally:
            response.close()
        raise ServerError("the answer broke off", _LOOK)

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> http.client.HTTPResponse:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=600)
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, json.dumps(body) if body is not None else None, self._headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServerError(f"no server answers at {self.url}: {error}", "start one with `octavo serve smollm2`, or pass --url") from None
        if response.status != 200:
            text = response.read().decode(errors="replace")
            try:
                text = _message(json.loads(text), text)
            except ValueError:
                text = text[:500] or response.reason
            hint = None if "\nhint: " in text else _HINTS.get(response.status)
            raise ServerError(f"the server answered {response.status}: {text}", hint)
        return response


def _message(body: Any, otherwise: str) -> str:
    """What an error's body says."""
    try:
        return str(body["error"]["message"])
    except (KeyError, TypeError):
        return otherwise[:500]


def add_arguments(parser: Parser, message: str) -> None:
    """What chat and complete have in common. message: what -q sends."""
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1", help="address of the API (default: %(default)s)")
    parser.add_argument("--model-name", metavar="NAME", help="default: the first that the server names")
    parser.add_argument("--api-key", metavar="KEY", help="default: OCTAVO_API_KEY")
    parser.add_argument("-q", "--quick", metavar=message, help="send this alone, print the answer and leave; - = all of standard input")
    parser.add_argument("--stats", action="store_true", help="after each answer tell the time to its first token and tokens a second")


class Piece(NamedTuple):
    """New text of an answer; is_reasoning: what the model thinks before it answers."""

    text: str
    is_reasoning: bool = False


Pieces = Callable[[dict[str, Any]], Iterator[Piece]]


class Answer:
    """Prints an answer as it comes: the text on standard output, reasoning and figures on standard error."""

    def __init__(self, pieces: Pieces, with_stats: bool) -> None:
        self.text = ""
        self.is_stopped = False
        self._pieces = pieces
        self._with_stats = with_stats
        self._reasons = False
        self._dim = environment.wants_color(sys.stderr.isatty())

    def read(self, server: Server, path: str, body: dict[str, Any]) -> "Answer":
        """Until its end, or until Ctrl-C. Raises ServerError."""
        figures = _Figures()
        if self._with_stats:
            body = body | {"stream_options": {"include_usage": True}}
        try:
            for chunk in server.stream(path, body):
                figures.note_usage(chunk)
                for piece in self._pieces(chunk):
                    figures.note_piece()
                    self._show(piece)
        except KeyboardInterrupt:
            self.is_stopped = True
            self._end_reasoning()
            print(" [stopped]", end="", file=sys.stderr, flush=True)
        except ServerError:
            self._end_reasoning()
            if self.text:
                print(flush=True)
            raise
        self._end_reasoning()
        print(flush=True)
        if self._with_stats:
            print(figures, file=sys.stderr)
        return self

    def _show(self, piece: Piece) -> None:
        if piece.is_reasoning:
            if not self._reasons and self._dim:
                print("\x1b[2m", end="", file=sys.stderr)
            self._reasons = True
            print(piece.text, end="", file=sys.stderr, flush=True)
            return
        self._end_reasoning()
        self.text += piece.text
        print(piece.text, end="", flush=True)

    def _end_reasoning(self) -> None:
        if self._reasons:
            print("\x1b[0m" if self._dim else "", file=sys.stderr, flush=True)
        self._reasons = False


class _Figures:
    """When the first piece came, and how many tokens there were."""

    def __init__(self) -> None:
        self._started_s = time.perf_counter()
        self._first_s: float | None = None
        self._last_s = self._started_s
        self._num_pieces = 0
        self._num_tokens: int | None = None

    def note_usage(self, chunk: dict[str, Any]) -> None:
        usage = chunk.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self._num_tokens = usage["completion_tokens"]

    def note_piece(self) -> None:
        self._num_pieces += 1
        self._last_s = time.perf_counter()
        self._first_s = self._first_s or self._last_s

    def __str__(self) -> str:
        """Tokens a second are those after the first; a server that does not count tokens has a token in each piece, nearly."""
        if self._first_s is None:
            return "[no token came]"
        count = self._num_pieces if self._num_tokens is None else self._num_tokens
        seconds = self._last_s - self._first_s
        rate = f", {(count - 1) / seconds:.1f} tokens/s" if count > 1 and seconds > 0 else ""
        about = "about " if self._num_tokens is None else ""
        return f"[TTFT {self._first_s - self._started_s:.3f} s{rate}, {about}{count} tokens in {self._last_s - self._started_s:.2f} s]"


def converse(words: str, ask: Callable[[str], Answer]) -> int:
    """Put each line that is typed, or piped in, to `ask`, until Ctrl-D or the end of the input. The exit code.

    words: said first on a terminal. An error ends it where nobody is there to read it and go on.
    """
    if not sys.stdin.isatty():
        for line in sys.stdin:
            if line.strip() and ask(line.rstrip("\n")).is_stopped:
                return 130
        return 0
    with suppress(ImportError):
        import readline  # noqa: F401  (gives input() its line editing)
    print(words, file=sys.stderr)
    while True:
        try:
            line = _typed()
        except EOFError:
            print(file=sys.stderr)
            return 0
        except KeyboardInterrupt:
            print(file=sys.stderr)
            continue
        if line.strip():
            try:
                ask(line)
            except ServerError as error:
                print(f"octavo: {error}", file=sys.stderr)


def _typed() -> str:
    if sys.stdout.isatty():
        return input("> ")
    print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def quick(text: str, ask: Callable[[str], Answer]) -> int:
    """One question and its answer. The exit code."""
    return 130 if ask(sys.stdin.read() if text == "-" else text).is_stopped else 0


def quietly(command: Callable[[], int]) -> int:
    """The command's exit code; one whose reader has gone (`| head`) ends as the system's own commands do."""
    try:
        return command()
    except BrokenPipeError:
        # what is left in the buffer cannot be written, and must not be tried again when the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + int(getattr(signal, "SIGPIPE", 13))
