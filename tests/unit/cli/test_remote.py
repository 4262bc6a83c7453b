"""chat and complete against a server that says what a test wants: streams of every shape, refusals, nonsense, silence."""

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from octavo.cli import chat, complete, main, remote

MODELS = b'{"data": [{"id": "m"}]}'


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._say(*self.server.models)  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, body, self.headers["authorization"]))  # type: ignore[attr-defined]
        answers = self.server.answers  # type: ignore[attr-defined]
        self._say(*answers[min(len(self.server.asked), len(answers)) - 1])  # type: ignore[attr-defined]

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class _Host(http.server.ThreadingHTTPServer):
    models: tuple[int, bytes]
    answers: list[tuple[int, bytes]]
    asked: list[tuple[str, Any, str | None]]


@pytest.fixture
def host() -> Iterator[_Host]:
    with _Host(("127.0.0.1", 0), _Handler) as server:
        server.models, server.answers, server.asked = (200, MODELS), [], []
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def stream(*chunks: Any, done: bool = True) -> tuple[int, bytes]:
    events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    return 200, b": keep-alive\n\n" + b"".join(events) + (b"data: [DONE]\n\n" if done else b"")


def said(**delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def octavo(host: _Host, *words: str) -> int:
    return main.main([words[0], "--url", f"http://127.0.0.1:{host.server_address[1]}/v1", *words[1:]])


def test_reasoning_goes_beside_the_answer(host: _Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.answers = [stream(said(role="assistant"), said(reasoning="hm"), said(reasoning_content="m"), said(content="yes"))]
    assert octavo(host, "chat", "-q", "is it?", "--system-prompt", "be short", "--api-key", "k") == 0
    assert tuple(capsys.readouterr()) == ("yes\n", "hmm\n")
    path, body, key = host.asked[0]
    assert (path, key, body["model"], body["stream"]) == ("/v1/chat/completions", "Bearer k", "m", True)
    assert body["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "is it?"}]
    assert "stream_options" not in body


def test_complete_asks_for_what_was_typed(host: _Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.answers = [stream({"choices": [{"text": " upon"}]}, {"choices": [{"text": " a time"}]})]
    assert octavo(host, "complete", "-q", "Once", "--max-tokens", "7", "--model-name", "other") == 0
    assert capsys.readouterr().out == " upon a time\n"
    assert host.asked[0][:2] == ("/v1/completions", {"model": "other", "prompt": "Once", "max_tokens": 7, "stream": True})


@pytest.mark.parametrize(
    ("last", "told"),
    [({"choices": [], "usage": {"completion_tokens": 9}}, ", 9 tokens in"), ({"choices": [], "usage": None}, "about 2 tokens in")],
)
def test_stats(host: _Host, capsys: pytest.CaptureFixture[str], last: dict[str, Any], told: str) -> None:
    host.answers = [stream(said(content="a"), said(content="b"), last)]
    assert octavo(host, "chat", "-q", "x", "--stats") == 0
    out, err = capsys.readouterr()
    assert out == "ab\n"
    assert err.startswith("[TTFT 0.")
    assert told in err
    assert host.asked[0][1]["stream_options"] == {"include_usage": True}


def test_lines_that_are_piped_in_are_one_conversation(
    host: _Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host.answers = [stream(said(content="1")), stream(said(role="assistant")), stream(said(content="3"))]
    monkeypatch.setattr(sys, "stdin", iter_lines := _Piped("a\n\nb\nc"))
    assert octavo(host, "chat") == 0
    assert iter_lines.rest() == ""
    assert tuple(capsys.readouterr()) == ("1\n\n3\n", "")
    contents = [[message["content"] for message in body["messages"]] for _, body, _ in host.asked]
    assert contents == [["a"], ["a", "1", "b"], ["a", "1", "c"]]  # what got no answer is not said again


def test_all_of_standard_input_as_one_message(host: _Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.answers = [stream(said(content="1"))]
    monkeypatch.setattr(sys, "stdin", _Piped("a\nb\n"))
    assert octavo(host, "chat", "-q", "-") == 0
    assert host.asked[0][1]["messages"][0]["content"] == "a\nb\n"


class _Piped:
    def __init__(self, text: str) -> None:
        import io

        self._io = io.StringIO(text)

    def isatty(self) -> bool:
        return False

    def __iter__(self) -> Iterator[str]:
        return iter(self._io)

    def read(self) -> str:
        return self._io.read()

    rest = read


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (stream(said(content="so far"), done=False), "the answer broke off"),
        (stream(said(content="so far"), {"error": {"message": "the engine died"}}), "the engine died"),
        ((200, b"data: {nonsense\n\n"), "the answer broke off"),
        ((400, b'{"error": {"message": "temperature: too hot"}}'), "answered 400: temperature: too hot"),
        ((404, b'{"error": {"message": "no model"}}'), "hint: an address usually ends in /v1"),
        ((401, b"<html>"), "hint: pass --api-key"),
        ((503, b'{"error": {"message": "full\\nhint: later"}}'), "full\nhint: later"),
        ((500, b""), "answered 500"),
    ],
)
def test_what_goes_wrong_is_said(host: _Host, capsys: pytest.CaptureFixture[str], answer: tuple[int, bytes], told: str) -> None:
    host.answers = [answer]
    assert octavo(host, "chat", "-q", "x") == 1
    out, err = capsys.readouterr()
    assert told in err
    assert err.startswith("octavo chat: ")
    assert out == ("so far\n" if "so far" in str(answer) else "")


@pytest.mark.parametrize("models", [(200, b"<html>"), (200, b"[]"), (200, b'{"data": 5}'), (200, b'{"data": []}'), (401, b"{}")])
def test_a_server_of_another_kind(host: _Host, capsys: pytest.CaptureFixture[str], models: tuple[int, bytes]) -> None:
    host.models = models
    assert octavo(host, "complete", "-q", "x") == 1
    assert "hint: " in capsys.readouterr().err


@pytest.mark.parametrize("url", ["ftp://x/v1", "http://", "x", "http://h:port/v1", "http://127.0.0.1:1/v1"])
def test_no_server(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert main.main(["chat", "--url", url, "-q", "x"]) == 1
    assert "hint: " in capsys.readouterr().err


def test_colours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    class _Server:
        def stream(self, path: str, body: Any) -> Iterator[Any]:
            yield from (said(reasoning="r"), said(content="c"))

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    remote.Answer(chat.pieces, False).read(_Server(), "/x", {})  # type: ignore[arg-type]
    assert capsys.readouterr().err == "\x1b[2mr\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    remote.Answer(chat.pieces, False).read(_Server(), "/x", {})  # type: ignore[arg-type]
    assert capsys.readouterr().err == "r\n"
    assert list(complete.pieces({"choices": [{"text": ""}, {"text": "x"}]})) == [remote.Piece("x")]
