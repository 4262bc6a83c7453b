"""run-batch with a real engine: its answers are the server's, and a run that is cut off loses nothing and repeats nothing."""

import json
import os
import re
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.real_server import ROOT, SMALL, TEXTS, RealServer, octavo, wait_for_end, write_model

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("script"))


def request(name: str, path: str, **body: Any) -> str:
    return json.dumps({"custom_id": name, "method": "POST", "url": path, "body": {"model": "scripted", "temperature": 0} | body})


class Run:
    """`octavo run-batch` in a folder: in.jsonl -> out.jsonl."""

    def __init__(self, model: Path, folder: Path, *words: str) -> None:
        self.output, self.journal = folder / "out.jsonl", folder / "out.jsonl.part"
        command = octavo("run-batch", str(model), "-i", str(folder / "in.jsonl"), "-o", str(self.output))
        self.process = subprocess.Popen(
            [*command, "--served-model-name", "scripted", *SMALL, *words],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until_kept(self, count: int) -> None:
        """Until the journal holds that many answers."""
        end = time.monotonic() + 60
        while not self.journal.exists() or self.journal.read_bytes().count(b"\n") <= count:
            assert self.process.poll() is None, self.errors()
            assert time.monotonic() < end
            select.select([], [], [], 0.002)

    def errors(self) -> str:
        return self.process.communicate(timeout=60)[1]

    def end(self) -> tuple[int, str]:
        said = self.errors()
        return self.process.returncode, said

    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines()]


def kept(journal: Path) -> dict[int, bytes]:
    """The answers in a journal by their numbers, as they stand there."""
    lines = [line.split(b" ", 3) for line in journal.read_bytes().splitlines()[1:]]
    return {int(line[0]): line[3] for line in lines}


def told(body: dict[str, Any]) -> Any:
    """An answer without what differs between any two."""
    return {key: value for key, value in body.items() if key not in ("id", "created")}


def test_answers_are_the_servers(model: Path, real_server: RealServer, tmp_path: Path) -> None:
    bodies: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"messages": [{"role": "user", "content": f"say {key}"}], "logprobs": True, "top_logprobs": 2}) for key in TEXTS
    ]
    bodies += [(COMPLETIONS, {"prompt": [f"say {key}", "say o"], "logprobs": 1, "echo": True, "return_token_ids": True}) for key in TEXTS]
    bodies += [(COMPLETIONS, {"prompt": "say p", "n": 3, "temperature": 1.0, "seed": 5, "ignore_eos": True, "max_tokens": 20})]
    bodies += [(CHAT, {"messages": [], "model": "unknown"}), (CHAT, {"messages": [{"role": "user", "content": "p"}], "temperature": 9})]
    lines = [request(f"r{number}", path, **body) for number, (path, body) in enumerate(bodies)]
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, "", "no request", *lines[:1]]))
    run = Run(model, tmp_path, "--enable-prompt-tokens-details")
    code, said = run.end()
    assert code == 0, said
    assert f"{len(bodies) + 2} lines answered, 4 of them with an error" in said
    answers = run.answers()
    assert [answer["custom_id"] for answer in answers] == [*(f"r{number}" for number in range(len(bodies))), None, "r0"]
    for answer, (path, body) in zip(answers, bodies, strict=False):
        theirs = real_server.post(path, **{"model": "scripted", "temperature": 0} | body)
        assert answer["response"]["status_code"] == theirs.status_code
        ours = answer["response"]["body"]
        assert answer["error"] == ours.get("error")
        if theirs.status_code == 200:
            assert ours["id"].endswith(answer["response"]["request_id"])
            for each in (ours, (said_there := theirs.json())):  # the prefixes that were cached before are the only difference
                assert each["usage"].pop("prompt_tokens_details") is not None
            assert told(ours) == told(said_there)
        else:
            assert ours == theirs.json()
    assert len({answer["id"] for answer in answers}) == len(answers)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"in.jsonl", "out.jsonl"}


def test_a_run_that_is_cut_off_goes_on(model: Path, tmp_path: Path) -> None:
    total = 90
    lines = [request(f"r{number}", COMPLETIONS, prompt=f"{number} o", max_tokens=30 + number % 7) for number in range(total)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")

    first = Run(model, tmp_path, "--max-inflight", "3")
    first.until_kept(5)
    first.process.send_signal(signal.SIGINT)
    code, said = first.end()
    assert (code, "the same command goes on" in said) == (130, True), said
    assert "Traceback" not in said
    after_first = kept(first.journal)
    assert 5 <= len(after_first) < total

    second = Run(model, tmp_path, "--max-inflight", "3")
    second.until_kept(len(after_first) + 8)
    children = [int(pid) for pid in Path(f"/proc/{second.process.pid}/task/{second.process.pid}/children").read_text().split()]
    second.process.kill()
    assert second.end()[0] == -signal.SIGKILL
    wait_for_end(children)
    after_second = kept(second.journal)
    assert len(after_first) + 8 <= len(after_second) < total
    assert not second.output.exists()
    with second.journal.open("ab") as file:  # what a power cut may leave
        file.write(b"89 ok 00000000 {}\n88 ok 1234")

    last = Run(model, tmp_path, "--enable-metrics", "--port", "0", "--max-inflight", "2")
    assert last.process.stderr is not None
    for line in last.process.stderr:
        if found := re.match(r"metrics at (\S+)", line):
            assert "vllm:num_requests_running" in httpx.get(found[1], timeout=20).text
            break
    code, said = last.end()
    assert code == 0, said
    answers = last.answers()
    assert [answer["custom_id"] for answer in answers] == [f"r{number}" for number in range(total)]
    assert all(answer["error"] is None for answer in answers)
    looped = (" tick tock tack" * 20).replace(" ", "| ").split("|")[1:]
    for number, answer in enumerate(answers):
        choice = answer["response"]["body"]["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("".join(looped[: 30 + number % 7]), "length")
    written = last.output.read_bytes().splitlines()
    for earlier in (after_first, after_second):
        assert all(written[number] == answer for number, answer in earlier.items())
    assert not last.journal.exists()


def test_a_journal_of_another_run_is_not_touched(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(request("a", COMPLETIONS, prompt="p"))
    (tmp_path / "out.jsonl.part").write_text('{"digest":"other","model":"x","version":1}\n')
    code, said = Run(model, tmp_path).end()
    assert code == 1
    assert "answers to another batch file" in said
    assert "hint: remove it" in said
    assert "Traceback" not in said
