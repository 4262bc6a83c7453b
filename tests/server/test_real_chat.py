"""`octavo chat -q` against a real server, and servers that break off; test_talking has the conversations."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.server.real_server import ROOT, TEXTS, RealServer, octavo


class Conversation:
    """An `octavo chat` whose keyboard is a pipe."""

    def __init__(self, url: str, *words: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            octavo("chat", "--url", f"{url}/v1", *words),
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, typed: str = "") -> tuple[int, str, str]:
        """Exit code, output and errors after `typed` and Ctrl-D."""
        out, errors = self.process.communicate(typed, timeout=60)
        return self.process.returncode, out, errors


def test_one_question(real_server: RealServer) -> None:
    code, out, errors = Conversation(real_server.url, "-q", "say t").end()
    assert (code, out, errors) == (0, TEXTS["t"] + "\n", "")


def test_a_refusal_is_told_and_ends_a_single_question(real_server: RealServer) -> None:
    code, out, errors = Conversation(real_server.url, "--model-name", "unknown", "-q", "say p").end()
    assert (code, out) == (1, "")
    assert "404" in errors
    assert "unknown" in errors
    assert "Traceback" not in errors


PIECE = b'data: {"choices": [{"delta": {"content": "half of"}}]}\n\n'
CHUNK = f"{len(PIECE):x}\r\n".encode() + PIECE + b"\r\n"


@pytest.mark.parametrize("ending", [b"", b"5\r\nda", b"0\r\n\r\n"])
def test_an_answer_that_breaks_off_is_no_answer(ending: bytes) -> None:
    """The server dies between two chunks, within one, or ends the answer in order but too early."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNK + ending)

        serving = threading.Thread(target=serve)
        serving.start()
        code, out, errors = Conversation(f"http://127.0.0.1:{listener.getsockname()[1]}", "--model-name", "m", "-q", "hello").end()
        serving.join()
    assert (code, out) == (1, "half of\n")
    assert "the answer broke off" in errors
    assert "Traceback" not in errors


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_no_server_is_told_with_what_to_do(closed_port: int) -> None:
    code, out, errors = Conversation(f"http://127.0.0.1:{closed_port}", "-q", "say p").end()
    assert (code, out) == (1, "")
    assert "no server answers" in errors
    assert "octavo serve" in errors
    assert "Traceback" not in errors
