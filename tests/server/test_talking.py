"""octavo chat and complete at a terminal, with a real server: what is typed, what is seen, Ctrl-C and Ctrl-D."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from typing import Any

import pytest

from tests.server.real_server import ROOT, TEXTS, RealServer, octavo


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, url: str, *words: str) -> None:
        ours, theirs = pty.openpty()
        self._terminal = ours
        self.seen = ""
        command = octavo(words[0], "--url", f"{url}/v1", *words[1:])
        environment = os.environ | {"TERM": "dumb", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, text: str, timeout_s: float = 30) -> str:
        """What was seen up to `text`, which is taken away with it."""
        end = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self._terminal], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._terminal, 4096).decode()
                except OSError as error:  # the other end is closed
                    raise AssertionError(self.seen) from error
        before, _, self.seen = self.seen.partition(text)
        return before

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        try:
            while os.read(self._terminal, 4096):
                continue
        except OSError:
            os.close(self._terminal)
        return self.process.wait(20)


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_a_conversation(real_server: RealServer, command: str) -> None:
    limit = ["--max-tokens", "16000"] if command == "complete" else []
    terminal = Terminal(real_server.url, command, "--stats", *limit)
    assert f"scripted at {real_server.url}/v1" in terminal.until("> ")
    terminal.type("say p\n")
    terminal.until(TEXTS["p"])
    assert "[TTFT " in terminal.until("5 tokens in")
    terminal.until("> ")
    terminal.type("for ever o\n")
    terminal.until(" tick tock tack tick")
    terminal.interrupt()
    terminal.until("[stopped]")
    terminal.until("> ")
    real_server.wait_idle()
    terminal.interrupt()  # nothing runs: it is taken for a line thrown away
    terminal.until("> ")
    terminal.type("say t\n")
    terminal.until(TEXTS["t"])
    terminal.until("> ")
    terminal.type("\x04")
    assert terminal.end() == 0


def run(url: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        octavo(words[0], "--url", f"{url}/v1", *words[1:]), cwd=ROOT, capture_output=True, text=True, timeout=60, **options
    )


def test_in_a_pipe(real_server: RealServer) -> None:
    done = run(real_server.url, "chat", input="say p\nsay t\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{TEXTS['p']}\n{TEXTS['t']}\n", "")
    done = run(real_server.url, "complete", "-q", "x p", "--max-tokens", "2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "plain wor\n", "")
    done = run(real_server.url, "chat", "--model-name", "other", input="say p\nsay t\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "The model `other` does not exist" in done.stderr


def test_a_reader_that_leaves(real_server: RealServer) -> None:
    command = octavo("complete", "--url", f"{real_server.url}/v1", "-q", "o", "--max-tokens", "16000")
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == " tick"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(20) == 128 + signal.SIGPIPE
    real_server.wait_idle()


def test_an_interrupted_question(real_server: RealServer) -> None:
    command = octavo("complete", "--url", f"{real_server.url}/v1", "-q", "o", "--max-tokens", "16000")
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == " tick"
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr is not None
        assert process.stderr.read().strip() == "[stopped]"
        assert process.wait(20) == 130
    real_server.wait_idle()


def test_the_kernels_of_a_running_server_are_in_use(real_server: RealServer) -> None:
    found = re.search(r"Kernels: .* kept in (\S+)", real_server.log)
    assert found is not None
    done = subprocess.run(octavo("cache", "ls", "--json"), cwd=ROOT, capture_output=True, text=True, check=True)
    assert [each["in_use"] for each in json.loads(done.stdout) if each["path"] == found[1]] == [True]
