"""octavo chat: a conversation with a running server. Ctrl-C stops an answer, Ctrl-D leaves."""

import http.client
import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from octavo import environment
from octavo.cli.parser import Parser
from octavo.errors import OctavoError

_LOOK = "the server's log may say why"


class ServerError(OctavoError, RuntimeError):
    """The server refused, or could not be reached."""


class Server:
    """An OpenAI-compatible server at `url` (which ends in /v1)."""

    def __init__(self, url: str, api_key: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServerError(f"--url {url!r} is not an http address", "for example http://127.0.0.1:8000/v1")
        self.url = url
        self._parts = parts
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})

    def models(self) -> list[str]:
        with_body = self._request("GET", "/models")
        return [str(m["id"]) for m in json.load(with_body)["data"]]

    def stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of a streamed chat completion. Raises ServerError if it breaks off."""
        response = self._request("POST", "/chat/completions", body | {"stream": True})
        try:
            for line in response:
                text = line.decode().strip()
                if not text.startswith("data:"):
                    continue
                data = text.removeprefix("data:").strip()
                if data == "[DONE]":
                    return
                chunk = json.loads(data)
                if "error" in chunk:
                    raise ServerError(chunk["error"].get("message", "the server ended the stream"))
                yield chunk
        except (OSError, http.client.HTTPException) as error:
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
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"no server answers at {self.url}: {error}", "start one with `octavo serve smollm2`, or pass --url") from None
        if response.status != 200:
            text = response.read().decode(errors="replace")
            try:
                text = json.loads(text)["error"]["message"]
            except (ValueError, KeyError, TypeError):
                text = text[:500]
            raise ServerError(f"the server answered {response.status}: {text}")
        return response


def parser() -> Parser:
    """The command line of `octavo chat`."""
    result = Parser(prog="octavo chat", description="Talk to a running server.")
    result.add_argument("--url", default="http://127.0.0.1:8000/v1", help="address of the API (default: %(default)s)")
    result.add_argument("--model-name", help="default: the first that the server names")
    result.add_argument("--api-key", help="default: OCTAVO_API_KEY")
    result.add_argument("--system-prompt", help="said to the model before anything else")
    result.add_argument("-q", "--quick", metavar="MESSAGE", help="send one message, print the answer and leave")
    return result


def run(argv: list[str]) -> int:
    args = parser().parse_args(argv)
    server = Server(args.url, args.api_key or environment.api_key())
    model = args.model_name or server.models()[0]
    messages: list[dict[str, str]] = []
    if args.system_prompt:
        messages.append({"role": "system", "content": args.system_prompt})
    if args.quick is not None:
        answer(server, model, [*messages, {"role": "user", "content": args.quick}])
        return 0
    print(f"{model} at {args.url}. Ctrl-C stops an answer, Ctrl-D leaves.", file=sys.stderr)
    while True:
        try:
            question = input("> ")
        except EOFError:
            print(file=sys.stderr)
            return 0
        except KeyboardInterrupt:
            print(file=sys.stderr)
            continue
        if question.strip():
            messages.append({"role": "user", "content": question})
            try:
                messages.append({"role": "assistant", "content": answer(server, model, messages)})
            except ServerError as error:  # as if it had not been asked
                messages.pop()
                print(f"octavo chat: {error}", file=sys.stderr)


def answer(server: Server, model: str, messages: list[dict[str, str]]) -> str:
    """Print the answer as it comes; what was printed is returned, cut short by Ctrl-C or not."""
    parts: list[str] = []
    try:
        for chunk in server.stream({"model": model, "messages": messages}):
            for choice in chunk.get("choices", []):
                if text := choice["delta"].get("content"):
                    parts.append(text)
                    print(text, end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="", file=sys.stderr)
    except ServerError:
        if parts:
            print(flush=True)
        raise
    print()
    return "".join(parts)
